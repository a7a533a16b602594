"""Environments that episodes run in: the `Environment` protocol and its implementations."""
