"""Inspection of the buffer: overview, single episodes, comparison of iterations, verification, unused files."""
