"""A bare Typer app, what `webgym --help` is compared with: `python -m benchmarks.cli_bare COMMANDS [ARGUMENT...]`."""

from __future__ import annotations

import sys

import typer


def make_app(commands: int) -> typer.Typer:
    """Return an app with so many commands that take nothing and do nothing."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

    def nothing() -> None:
        """Do nothing at all."""

    for number in range(commands):
        app.command(f"command-{number}")(nothing)
    return app


if __name__ == "__main__":
    count = int(sys.argv.pop(1))
    make_app(count)()
