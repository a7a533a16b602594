"""The options that commands share: one wording, one behaviour."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from webgym_cli.cli import completion as complete


def parse_run(text: str) -> Path:
    """Return a run's folder. Raises `typer.BadParameter` for an empty name, which would be the current folder."""
    if not text.strip():
        raise typer.BadParameter("empty: name the run's folder")
    return Path(text)


RunArg = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="The run's folder (created by rollout and loop).",
        parser=parse_run,
        autocompletion=complete.runs,
    ),
]
ConfigOpt = Annotated[
    list[str] | None,
    typer.Option(
        "-c",
        "--config",
        metavar="FILE",
        help="Settings file, or a shipped name (demo). Repeatable; later wins.",
        autocompletion=complete.settings_files,
    ),
]
SetOpt = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--set",
        metavar="KEY=VALUE",
        help="One setting, section.key=value. Repeatable; wins over files.",
        autocompletion=complete.settings,
    ),
]
JsonOpt = Annotated[
    bool, typer.Option("--json", help="JSON Lines on stdout (the default of long commands into a pipe).")
]
QuietOpt = Annotated[bool, typer.Option("-q", "--quiet", help="Only ids on stdout.")]
DryRunOpt = Annotated[bool, typer.Option("-n", "--dry-run", help="Print the plan and write nothing.")]
