"""Recording of demonstrations: a person acts on a page, and the actions are replayed in a fresh browser context."""
