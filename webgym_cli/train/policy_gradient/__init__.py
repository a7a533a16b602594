"""The backends of our own trainer: policy gradients, and WebRL's actor-critic."""
