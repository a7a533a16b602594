"""Reward functions: `reward` makes one from a function."""

from webgym_cli.scoring.define import Reward, reward

__all__ = ["Reward", "reward"]
