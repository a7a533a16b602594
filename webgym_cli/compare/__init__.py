"""Comparison of policy versions and of runs by the episodes that they share."""
