"""Help pages made from command docstrings, with blocks for examples, exit codes and related commands.

The first line of a docstring is the summary. A paragraph that begins with `Examples:` has one command per line;
`Exit codes: 3, 5.` lists the codes in addition to the general ones, and `See also:` lists related commands.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from webgym_cli.cli.options import spread_options
from webgym_cli.errors import EXIT_CODES

# The exit codes that every command may have.
GENERAL = (0, 1, 2, 130, 143)


@dataclass(frozen=True, slots=True)
class HelpPage:
    """A parsed command docstring."""

    summary: str
    """One sentence."""
    prose: tuple[str, ...]
    """Paragraphs."""
    examples: tuple[str, ...]
    """Shell lines."""
    exit_codes: tuple[int, ...]
    """The general ones, too."""
    see_also: tuple[str, ...]
    """Commands, as they are typed."""


def parse_docstring(docstring: str) -> HelpPage:
    """Parse a docstring into a help page."""
    summary, *paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(docstring))
    blocks = {"Examples": "", "Exit codes": "", "See also": ""}
    prose = []
    for paragraph in paragraphs:
        name, colon, text = paragraph.partition(":")
        if colon and name in blocks:
            blocks[name] = text
        else:
            prose.append(paragraph)
    return HelpPage(
        " ".join(summary.split()),
        tuple(prose),
        tuple(line.strip() for line in blocks["Examples"].splitlines() if line.strip()),
        tuple(sorted({*GENERAL, *map(int, re.findall(r"\d+", blocks["Exit codes"]))})),
        tuple(name.strip(" .\n") for name in blocks["See also"].split(",") if name.strip()),
    )


class ManualCommand(TyperCommand):
    """A command whose help keeps the line breaks of examples."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the description, then the examples."""
        help_page = parse_docstring(self.help or "")
        for paragraph in (help_page.summary, *help_page.prose):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(paragraph)
        if help_page.examples:
            with formatter.section("Examples"):
                for line in help_page.examples:
                    formatter.write(f"{' ' * formatter.current_indent}{line}\n")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the exit codes and the related commands."""
        help_page = parse_docstring(self.help or "")
        _write_exit_codes(formatter, help_page.exit_codes)
        if help_page.see_also:
            with formatter.section("See also"):
                formatter.write_text(", ".join(help_page.see_also))


class ManualGroup(TyperGroup):
    """A group that lists its commands by panel, each with its untruncated summary."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, one section per panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command.hidden:
                continue
            panels.setdefault(command.rich_help_panel or "Commands", []).append(
                (name, parse_docstring(command.help).summary)
            )
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write all exit codes on the program's own help page."""
        # A group of commands (`webgym tasks`) has the codes of its commands.
        if ctx.parent is None:
            _write_exit_codes(formatter, EXIT_CODES)


def make_group(summary: str) -> typer.Typer:
    """Return an app for the commands of a group (`webgym tasks`)."""
    return typer.Typer(cls=ManualGroup, help=summary, no_args_is_help=True, rich_markup_mode=None)


def command(
    app: typer.Typer, name: str | None = None, panel: str | None = None, *, hidden: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds a function to an app as a command with a manual page."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name, cls=ManualCommand, rich_help_panel=panel, hidden=hidden)(spread_options(function))
        return function

    return register


def _write_exit_codes(formatter: Any, codes: Iterable[int]) -> None:
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(code), EXIT_CODES[code]) for code in codes])
