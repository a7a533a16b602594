"""The run directory: every path, the append-only truth, the images, the lock."""
