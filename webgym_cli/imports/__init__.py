"""Brings other systems' episodes into a run: their files are read as data, nothing in them is ever executed."""
