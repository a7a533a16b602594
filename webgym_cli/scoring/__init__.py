"""Reward functions and checks: `reward` and `check` make one from a function."""

from webgym_cli.scoring.check import CheckContext, NeedsPageError, TaskCheck, check
from webgym_cli.scoring.define import Reward, reward

__all__ = ["CheckContext", "NeedsPageError", "Reward", "TaskCheck", "check", "reward"]
