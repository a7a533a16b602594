"""The command-line app: commands in the order of the pipeline. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

import webgym_cli
from webgym_cli.errors import EXIT_CODES

app = typer.Typer(
    name="webgym",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + ".",
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
    from webgym_cli.cli import config, fixture, tasks
    from webgym_cli.cli.compare import compare
    from webgym_cli.cli.diff import diff
    from webgym_cli.cli.doctor import doctor
    from webgym_cli.cli.export_sharegpt import export_sharegpt
    from webgym_cli.cli.gc import gc
    from webgym_cli.cli.import_ import import_
    from webgym_cli.cli.init_model import init_model
    from webgym_cli.cli.inspect_buffer import inspect_buffer
    from webgym_cli.cli.judge import judge
    from webgym_cli.cli.loop import loop
    from webgym_cli.cli.prepare import prepare
    from webgym_cli.cli.report import report
    from webgym_cli.cli.resume import resume
    from webgym_cli.cli.rollout import rollout
    from webgym_cli.cli.serve import serve
    from webgym_cli.cli.setup import setup
    from webgym_cli.cli.show import show
    from webgym_cli.cli.status import status
    from webgym_cli.cli.train import train

    app.command()(setup)
    app.command()(doctor)
    stages = (rollout, judge, prepare, train, resume, status, loop, serve)
    for command in (*stages, report, compare, inspect_buffer, show, diff, export_sharegpt, import_, gc, init_model):
        app.command(command.__name__.strip("_").replace("_", "-"))(command)
    app.add_typer(tasks.app, name="tasks")
    app.add_typer(fixture.app, name="fixture")
    app.add_typer(config.app, name="config")


_register()
