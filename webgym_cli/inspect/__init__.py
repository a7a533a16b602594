"""Inspection of the buffer: overview, single episodes, verification, unused files."""
