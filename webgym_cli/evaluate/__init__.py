"""Evaluations: what was measured under which conditions, as one record that is written once."""
