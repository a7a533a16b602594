"""Reward functions and checks: `reward` and `check` make one from a function."""

from webgym_cli.scoring.check import Check, CheckContext, NeedsPageError, check
from webgym_cli.scoring.define import Reward, reward

__all__ = ["Check", "CheckContext", "NeedsPageError", "Reward", "check", "reward"]
