"""`webgym prepare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from webgym_cli.cli.options import RunArg, StageOptions

TargetOpt = Annotated[
    Literal["policy", "orm"],
    typer.Option("--target", help="Model to train: the policy, or the run's outcome reward model (RUN/orm)."),
]


def prepare(run: RunArg, options: StageOptions, target: TargetOpt = "policy") -> None:
    """Build the training data from the replay buffer.

    Writes a dataset (train.algorithm=sft, RUN/llamafactory_data), or else the iteration's batch (RUN/rl_data). --target
    orm writes the training set of an outcome reward model, in the separate run RUN/orm.

    Examples:
      webgym prepare runs/a
      webgym prepare runs/a --target orm && webgym train runs/a/orm && webgym score runs/a --orm runs/a/orm/model.pt
      webgym prepare runs/a -s algorithm_config.positive_samples_to_train=600
      webgym prepare runs/a -s train.algorithm=webrl -s 'rl.replay.experience=["runs/sft"]'
      webgym prepare runs/a --dry-run --json | jq .dropped_steps

    Exit codes: 3, 75.

    See also: webgym inspect-buffer, webgym train, webgym score, webgym export-sharegpt.
    """
    from webgym_cli.cli.run_index import open_run_index
    from webgym_cli.cli.stage import open_training, resolve, stage
    from webgym_cli.loop.preparation import format_preparation, plan_preparation
    from webgym_cli.loop.preparation import prepare as prepare_data

    if target == "orm":
        _prepare_orm(run, options)
        return
    directory, settings = resolve(run, options, required=True)
    output = open_training(directory, settings, options)
    if options.dry_run:
        with open_run_index(directory, output, kept=False) as index:
            output.show(plan_preparation(directory, settings, index).to_json())
        return
    with stage("prepare", directory, settings, output) as at:
        prepared = at.execute(lambda context: prepare_data(context, again=True))
    output.note(format_preparation(prepared, directory, settings))
    output.next_step(f"webgym train {run}")


def _prepare_orm(run: Path, options: StageOptions) -> None:
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.loop.orm_preparation import orm_settings, prepare_orm
    from webgym_cli.loop.preparation import check_prepared
    from webgym_cli.prepare.sft.orm import plan_orm_dataset

    directory, settings = resolve(run, StageOptions(trust=options.trust), required=True)
    of_orm = orm_settings(directory, options.config or [], options.set_ or [])
    output = options.open_output()
    if options.dry_run:
        output.show(plan_orm_dataset(directory, of_orm).to_json())
        return
    with stage("prepare", directory, settings, output, {"target": "orm"}) as at:
        prepared = run_async(prepare_orm(at.run, of_orm, at.sink))
        run_async(check_prepared(at.run.orm, of_orm, at.logs, at.sink))
    output.note(f"{prepared.summarize()} in {run / 'orm'}")
    output.next_step(f"webgym train {run / 'orm'}")
