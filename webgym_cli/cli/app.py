"""The command-line app. A command's module is imported only if the command is run, or for the list of all."""

from __future__ import annotations

from importlib import import_module
from itertools import chain
from typing import Annotated

import typer

import webgym_cli
from webgym_cli.cli.manual import ManualGroup, command

# The modules of `commands`, in the order of the pipeline: each has a command of its name, or an `app` of several. Those
# without a panel are earlier names, which no help page lists.
_PANELS = {
    "Pipeline": (
        *("rollout", "record", "judge", "score", "eval_", "prepare", "train"),
        *("loop", "curriculum", "resume", "serve", "gateway"),
    ),
    "Look": ("status", "inspect_buffer", "show", "view", "label", "report", "compare"),
    "Exchange": ("export_sharegpt", "import_", "env", "track", "gc"),
    "Set up": ("setup", "doctor", "init_model", "login", "tasks", "tools", "config"),
    "": ("diff",),
}


def _spell(module: str) -> str:
    """Return a command as it is typed."""
    return module.strip("_").replace("_", "-")


def build_app(named: str = "") -> typer.Typer:
    """Return the app with the named command alone, or with all commands if there is none of that name."""
    app = typer.Typer(
        name="webgym",
        cls=ManualGroup,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    only = next((name for name in chain(*_PANELS.values()) if _spell(name) == named), None)
    for panel, names in _PANELS.items():
        for name in names:
            if only in (None, name):
                module = import_module(f"webgym_cli.cli.commands.{name}")
                if hasattr(module, "app"):
                    app.add_typer(module.app, name=name, rich_help_panel=panel)
                else:
                    command(app, _spell(name), panel, hidden=not panel)(getattr(module, name))
    return app


def _version(value: bool) -> None:
    if value:
        typer.echo(f"webgym {webgym_cli.__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train visual web agents: rollouts in real Chromium, a replay buffer, training, the next policy, again."""
