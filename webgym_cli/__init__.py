"""webgym: train visual web agents."""

__version__ = "0.1.0"
