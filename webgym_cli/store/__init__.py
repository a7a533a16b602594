"""The run directory: paths, append-only files, images, index and lock."""
