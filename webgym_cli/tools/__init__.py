"""Tools that a policy may call: `tool` makes one from a function or class."""

from webgym_cli.tools.define import EpisodeContext, Tool, ToolOutput, tool

__all__ = ["EpisodeContext", "Tool", "ToolOutput", "tool"]
