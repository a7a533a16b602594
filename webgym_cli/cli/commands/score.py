"""`webgym score`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from webgym_cli.cli.commands.judge import IterationOpt, SplitOpt, query_of
from webgym_cli.cli.ids import IdsArg, read_ids
from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, RunArg, SetOpt
from webgym_cli.cli.output import Output
from webgym_cli.errors import UsageError

OrmOpt = Annotated[
    str | None,
    typer.Option(
        "--orm",
        metavar="MODEL_OR_URL",
        help="The model: a folder or hub id, served while it scores, or the base URL of a server.",
    ),
]
UnscoredOpt = Annotated[bool, typer.Option("--unscored", help="What no model has scored yet (the default).")]
AllOpt = Annotated[bool, typer.Option("--all", help="Also what another model has scored (default with ids).")]


def score(
    run: RunArg,
    ids: IdsArg = None,
    orm: OrmOpt = None,
    split: SplitOpt = None,
    iteration: IterationOpt = "all",
    unscored: UnscoredOpt = False,
    all_: AllOpt = False,
    config: ConfigOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Score stored trajectories by an outcome reward model.

    The model reads the task, all actions and the last page, and its first token says YES or NO: the probability of YES
    is stored beside the trajectory. From orm.threshold on it is a success, but that is the reward only where neither
    the environment nor a judge gave one. What a model has scored is not scored by it again, so the same command goes
    on where it stopped; with another threshold it decides anew without asking. What can't be read is no success: it is
    counted and asked again the next time.

    Examples:
      webgym score runs/a --orm models/orm
      webgym score runs/a --orm http://localhost:8000/v1 --split train
      webgym score runs/a --all -s orm.threshold=0.7

    Exit codes: 3, 4, 75.

    See also: webgym judge, webgym inspect-buffer, webgym serve.
    """
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.loop.scoring import resolve_orm_model
    from webgym_cli.loop.scoring import score as score_run
    from webgym_cli.rewards.orm.scorer import OrmScorer
    from webgym_cli.rewards.selection import plan_scoring
    from webgym_cli.store.run import open_run

    open_run(run)
    if unscored and all_:
        raise UsageError("--unscored and --all exclude each other")
    options: dict[str, Any] = {"ids": read_ids(ids), "split": split and split.value, "iteration": iteration}
    options |= {"unscored": unscored, "all_": all_}
    query = query_of({**options, "unjudged": unscored, "failed": False})
    directory, settings = resolve(run, config, [*(set_ or ()), *_list_settings(orm)])
    settings = resolve_orm_model(settings)
    output = Output.for_events(json)
    plan = plan_scoring(directory, OrmScorer(settings.orm), query)
    if dry_run:
        output.show(plan.to_json())
        return
    with stage("score", directory, settings, output, options) as at:
        summary = at.execute(lambda pipeline: score_run(pipeline, query))
    output.next_step(f"webgym score {run}" if summary["unreadable"] else f"webgym inspect-buffer {run}")


def _list_settings(orm: str | None) -> list[str]:
    """Return the settings that `--orm` stands for."""
    if orm is None:
        return []
    if orm.startswith(("http://", "https://")):
        return [f"orm.base_url={orm}", "orm.model="]
    return ["orm.base_url=", f"orm.model={Path(orm).resolve() if Path(orm).is_dir() else orm}"]
