"""Imports episodes of other systems into a run. Their files are read as data; nothing in them is executed."""
