"""`webgym resume`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from webgym_cli.cli.options import DryRunOpt, JsonOpt, MaxCallsOpt, MaxCostOpt, PaidOptions, RunArg, TrustOpt
from webgym_cli.cli.output import Output

if TYPE_CHECKING:
    from webgym_cli.store.run import RunDir
    from webgym_cli.store.status import RunningCommand


def resume(
    run: RunArg,
    max_cost: MaxCostOpt = None,
    max_judge_calls: MaxCallsOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
    trust: TrustOpt = False,
) -> None:
    """Resume the interrupted command of a run.

    That is a rollout, judge, score, eval, tasks generate, import, prepare, train, loop or curriculum. Each stage does
    only what is missing: stored episodes are kept, a training continues from its last checkpoint. A command that ended
    at a limit of its cost goes on with a larger one.

    Examples:
      webgym resume runs/a
      webgym resume runs/a --dry-run
      webgym resume runs/a --max-cost 20

    Exit codes: 3, 4, 5, 75, 85, 86.

    See also: webgym status, webgym loop.
    """
    from pydantic import validate_call

    from webgym_cli.cli.stage import trust as trust_runs
    from webgym_cli.store.find_run import open_run
    from webgym_cli.store.status import finish, lock_run, read_running_command

    directory, _ = open_run(run)
    interrupted = read_running_command(directory)
    output = Output(as_json=json)
    if interrupted is None:
        output.note(f"{run}: nothing was interrupted")
        return
    if trust:
        trust_runs(directory)
    _require_trust(directory, interrupted)
    if model := _find_published(directory, interrupted):
        output.note(f"{run}: its training was finished, {model} is published: nothing is left of it")
        if not dry_run:
            with lock_run(directory, f"resume {run}"):
                finish(directory, interrupted.interrupted)
        return
    doing = "would resume" if dry_run else "resuming"
    output.note(f"{doing} `webgym {interrupted.command}`, begun {interrupted.since}")
    command, place = _import_command(interrupted.command)
    # state.json holds texts; the commands take types.
    options = PaidOptions(json=json, dry_run=dry_run, max_cost=max_cost, max_judge_calls=max_judge_calls)
    validate_call(command)(**{place: run}, options=options, **_keep_options(interrupted.options, output))


def _find_published(run: RunDir, interrupted: RunningCommand) -> str:
    """Return the name of the model that an interrupted training has published; empty if it has not."""
    from webgym_cli.prepare.data import PREPARED_DATA
    from webgym_cli.store.checkpoints import current, version

    if interrupted.command != "train" or (newest := current(run)) is None:
        return ""
    # data names the model that it is for, times would depend on a clock that may be set back
    written = [data.facts() for name in PREPARED_DATA.names() if (data := PREPARED_DATA.find(name).find_written(run))]
    is_done = newest.name in {facts["model_name"] for facts in written}
    # of two kinds of data the newer one may be for the next model
    return newest.name if is_done and version(run) not in {facts["iteration"] for facts in written} else ""


def _import_command(name: str) -> tuple[Callable[..., None], str]:
    """Return the function of a command, and the name of its parameter for the run."""
    from importlib import import_module

    function = {"import": "import_", "eval": "eval_"}.get(name, name)
    return getattr(import_module(f"webgym_cli.cli.commands.{function}"), function), "out" if name == "eval" else "run"


def _keep_options(options: Mapping[str, Any], output: Output) -> Mapping[str, Any]:
    """Return a command's options, without the end of a job that it was begun in and is resumed outside of."""
    from webgym_cli.loop.loop_plan import END_VARIABLE

    if not options.get("stop_before") or END_VARIABLE in os.environ:
        return options
    output.note(f"{END_VARIABLE} is not set: --stop-before {options['stop_before']} is left out")
    return {**options, "stop_before": None}


def _require_trust(run: RunDir, interrupted: RunningCommand) -> None:
    """Raise `UsageError` for a command of a run that was made elsewhere, unless nothing of it is executed."""
    from webgym_cli.config.trust import POLICY, is_own, refuse_foreign, require_trust, select_executed

    if is_own(run.root):
        return
    # it names files to read and to write, which a stranger's note must not choose
    if interrupted.command in ("generate", "import", "eval") or interrupted.options.get("verdicts"):
        raise refuse_foreign(run.root, f"its {interrupted.command} reads and writes files that its author chose")
    require_trust(run.root, select_executed({POLICY: interrupted.options.get("policy")}))
