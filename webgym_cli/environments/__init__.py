"""The worlds that episodes run in: one Protocol, browsers behind it."""
