"""`webgym resume`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from webgym_cli.cli.options import DryRunOpt, JsonOpt, RunArg
from webgym_cli.cli.output import Output


def resume(run: RunArg, json: JsonOpt = False, dry_run: DryRunOpt = False) -> None:
    """Take up the command that was interrupted in a run.

    That is a rollout, judge, score, tasks generate, import, prepare, train, loop or curriculum. Every stage does
    only what is missing: stored episodes stay, a training goes on from its last checkpoint.

    Examples:
      webgym resume runs/a
      webgym resume runs/a --dry-run

    Exit codes: 3, 4, 5, 75.

    See also: webgym status, webgym loop.
    """
    from webgym_cli.cli.commands.curriculum import curriculum
    from webgym_cli.cli.commands.generate import generate
    from webgym_cli.cli.commands.import_ import resume_import
    from webgym_cli.cli.commands.judge import judge
    from webgym_cli.cli.commands.loop import loop
    from webgym_cli.cli.commands.prepare import prepare
    from webgym_cli.cli.commands.rollout import rollout
    from webgym_cli.cli.commands.score import score
    from webgym_cli.cli.commands.train import train
    from webgym_cli.records.groups import Split
    from webgym_cli.store.run import open_run
    from webgym_cli.store.state import read_running_command

    directory, _ = open_run(run)
    interrupted = read_running_command(directory)
    output = Output(as_json=json)
    if interrupted is None:
        output.note(f"{run}: nothing was interrupted")
        return
    output.note(
        f"{'would resume' if dry_run else 'resuming'} `webgym {interrupted.command}`, begun {interrupted.since}"
    )
    # state.json holds texts; the commands take types.
    options: dict[str, Any] = dict(interrupted.options)
    if options.get("split"):
        options["split"] = Split(options["split"])
    if options.get("out"):
        options["out"] = Path(options["out"])
    stages: tuple[Callable[..., None], ...] = (rollout, judge, score, generate, prepare, train, loop, curriculum)
    commands = {stage.__name__: stage for stage in stages} | {"import": resume_import}
    commands[interrupted.command](run, json=json, dry_run=dry_run, **options)
