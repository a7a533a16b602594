"""Tools that a policy may call: `tool` makes one of a function or a class."""

from webgym_cli.tools.define import Tool, ToolOutput, tool

__all__ = ["Tool", "ToolOutput", "tool"]
