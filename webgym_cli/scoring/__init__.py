"""Reward functions and checks: `reward`, `check` and `shaping` make one from a function."""

from webgym_cli.scoring.check import CheckContext, NeedsPageError, TaskCheck, check, shaping
from webgym_cli.scoring.define import Reward, reward

__all__ = ["CheckContext", "NeedsPageError", "Reward", "TaskCheck", "check", "reward", "shaping"]
