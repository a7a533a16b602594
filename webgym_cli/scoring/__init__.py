"""What an answer is worth: `reward` makes a reward function of a function."""

from webgym_cli.scoring.define import Reward, reward

__all__ = ["Reward", "reward"]
