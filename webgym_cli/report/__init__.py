"""Reports: a self-contained HTML page for a run, and for the comparison of two runs."""
