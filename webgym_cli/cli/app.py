"""The command-line app: commands in the order of the pipeline. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import webgym_cli
from webgym_cli.cli.manual import Manual, ManualGroup

app = typer.Typer(
    name="webgym",
    cls=ManualGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"webgym {webgym_cli.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train visual web agents: rollouts in real Chromium, a replay buffer, training, the next policy, again."""


def _register() -> None:
    """Add the commands, in the order of the pipeline."""
    from webgym_cli.cli.commands import config, fixture, tasks, tools
    from webgym_cli.cli.commands.compare import compare
    from webgym_cli.cli.commands.curriculum import curriculum
    from webgym_cli.cli.commands.diff import diff
    from webgym_cli.cli.commands.doctor import doctor
    from webgym_cli.cli.commands.export_sharegpt import export_sharegpt
    from webgym_cli.cli.commands.gc import gc
    from webgym_cli.cli.commands.import_ import import_
    from webgym_cli.cli.commands.init_model import init_model
    from webgym_cli.cli.commands.inspect_buffer import inspect_buffer
    from webgym_cli.cli.commands.judge import judge
    from webgym_cli.cli.commands.login import login
    from webgym_cli.cli.commands.loop import loop
    from webgym_cli.cli.commands.prepare import prepare
    from webgym_cli.cli.commands.report import report
    from webgym_cli.cli.commands.resume import resume
    from webgym_cli.cli.commands.rollout import rollout
    from webgym_cli.cli.commands.score import score
    from webgym_cli.cli.commands.serve import serve
    from webgym_cli.cli.commands.setup import setup
    from webgym_cli.cli.commands.show import show
    from webgym_cli.cli.commands.status import status
    from webgym_cli.cli.commands.track import track
    from webgym_cli.cli.commands.train import train

    panels: dict[str, tuple[Callable[..., None], ...]] = {
        "Pipeline": (rollout, judge, score, prepare, train, loop, curriculum, resume, serve),
        "Look": (status, inspect_buffer, show, diff, report, compare),
        "Exchange": (export_sharegpt, import_, track, gc),
        "Set up": (setup, doctor, init_model, login),
    }
    for panel, commands in panels.items():
        for command in commands:
            name = command.__name__.strip("_").replace("_", "-")
            app.command(name, cls=Manual, rich_help_panel=panel)(command)
    for group in (tasks.app, tools.app, fixture.app, config.app):
        app.add_typer(group, name=group.info.name, rich_help_panel="Set up")


_register()
