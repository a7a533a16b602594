"""WebRL's actor-critic: states, losses, critics."""
