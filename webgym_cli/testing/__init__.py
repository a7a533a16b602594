"""Products for trying webgym without a GPU or downloads: the tiny model. Used by the tests and by the demo."""
