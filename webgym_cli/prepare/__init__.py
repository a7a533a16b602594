"""Prepare: the replay buffer becomes a dataset and a training configuration."""
