"""The training data of an outcome reward model."""
