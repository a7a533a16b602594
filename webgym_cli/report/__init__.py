"""Reports: a self-contained HTML page for a run."""
