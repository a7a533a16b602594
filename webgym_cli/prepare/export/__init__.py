"""Export formats of the replay buffer."""
