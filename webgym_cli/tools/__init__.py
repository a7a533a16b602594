"""Tools that a policy may call: `tool` makes one from a function or class."""

from webgym_cli.tools.context import EpisodeContext
from webgym_cli.tools.define import Tool, ToolOutput, tool

__all__ = ["EpisodeContext", "Tool", "ToolOutput", "tool"]
