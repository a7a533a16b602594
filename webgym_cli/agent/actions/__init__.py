"""Action sets, the parsers of replies, and call formats."""
