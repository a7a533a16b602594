"""`webgym train`: the prepared dataset becomes the next policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, RunArg, SetOpt

if TYPE_CHECKING:
    from webgym_cli.cli.output import Output
    from webgym_cli.config.model import Settings
    from webgym_cli.records.checkpoint import Checkpoint
    from webgym_cli.store.run import RunDir


def train(
    run: RunArg, config: ConfigOpt = None, set_: SetOpt = None, json: JsonOpt = False, dry_run: DryRunOpt = False
) -> None:
    """Train the policy on the prepared dataset with LLaMA-Factory, and make the result the current policy."""
    from webgym_cli.cli.output import Output
    from webgym_cli.config.load import load
    from webgym_cli.store.run import RunDir
    from webgym_cli.train.plan import plan_training

    place = RunDir(run)
    settings = load(config or (), set_ or (), run_config=place.config)
    output = Output.for_events(json)
    if dry_run:
        output.data(plan_training(place, settings).to_json())
        return
    checkpoint = _train(place, settings, output, {"config": config, "set_": set_, "json": json})
    loss = "" if checkpoint.loss is None else f", loss {checkpoint.loss:.4g}"
    output.note(f"{checkpoint.name}: {checkpoint.steps} steps{loss}; policy version {checkpoint.version}")
    output.next_step(f"webgym rollout {run}")


def _train(place: RunDir, settings: Settings, output: Output, options: dict[str, object]) -> Checkpoint:
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.store import checkpoints, state
    from webgym_cli.store.lock import locked
    from webgym_cli.store.run import create_or_open, new_attempt
    from webgym_cli.train.execute import execute
    from webgym_cli.train.plan import plan_training

    _must_exist(place)
    with locked(place, f"train {place.root}"):
        create_or_open(place, settings)
        checkpoints.repair_link(place, settings)
        plan = plan_training(place, settings)
        state.begin(place, "train", options)
        with output.progress() as board:
            checkpoint = run_async(execute(plan, place, settings, new_attempt(place), board))
        state.finish(place)
    return checkpoint


def _must_exist(place: RunDir) -> None:
    from webgym_cli.errors import MissingStageError

    if not place.exists:
        raise MissingStageError(f"{Path(place.root)}: there is no run", hint=f"webgym rollout {place.root}")
