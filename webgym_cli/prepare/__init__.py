"""Data preparation: makes a training dataset and its configuration from the replay buffer."""
