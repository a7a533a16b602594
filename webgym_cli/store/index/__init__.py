"""The buffer's index: Parquet tables derived from the append-only files, rebuilt from them at any time."""
