"""Tasks on the open web."""
