"""Training data of the outcome reward model."""
