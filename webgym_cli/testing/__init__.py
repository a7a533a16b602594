"""The tiny model, for tests and demos without a GPU or downloads."""
