"""Rollouts on several nodes: Ray actors, one a node."""
