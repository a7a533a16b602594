"""Rollouts on several nodes, with one Ray actor per node."""
