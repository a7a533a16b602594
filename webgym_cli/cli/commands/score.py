"""`webgym score`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli.commands.inspect_buffer import SplitOpt
from webgym_cli.cli.commands.judge import IterationOpt, build_query
from webgym_cli.cli.options import IdsArg, RunArg, StageOptions, read_ids, refuse_both

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings
    from webgym_cli.rewards.check_scorer import CheckScorer
    from webgym_cli.rewards.orm.scorer import OrmScorer

OrmOpt = Annotated[
    str | None,
    typer.Option(
        "--orm",
        metavar="MODEL_OR_URL",
        help="The model: a folder or hub id, served during the scoring, or the base URL of a server.",
    ),
]
CheckOpt = Annotated[bool, typer.Option("--check", help="By the checks of the tasks instead of a model.")]
VerdictsOpt = Annotated[
    Path | None,
    typer.Option("--verdicts", metavar="DIR", help="By webarena-verified's results in an export that it scored."),
]
UnscoredOpt = Annotated[
    bool,
    typer.Option(
        "--unscored", help="Only trajectories without a score by a model, or by the check as it is now (default)."
    ),
]
AllOpt = Annotated[
    bool, typer.Option("--all", help="Also those that another model, or the same check, has scored (default with ids).")
]


def score(
    run: RunArg,
    options: StageOptions,
    ids: IdsArg = None,
    orm: OrmOpt = None,
    check: CheckOpt = False,
    verdicts: VerdictsOpt = None,
    split: SplitOpt = None,
    iteration: IterationOpt = "all",
    unscored: UnscoredOpt = False,
    all_: AllOpt = False,
) -> None:
    """Score stored trajectories by model, --check or --verdicts.

    The stored score is the probability of YES; from orm.threshold on it is a success where neither the environment nor
    a judge decided. --check repeats the checks of the tasks instead, and replaces their rewards. --verdicts reads those
    of webarena-verified, which count like a check's.

    Examples:
      webgym score runs/a --orm models/orm
      webgym score runs/a --orm http://localhost:8000/v1 --split train
      webgym score runs/a --all -s orm.threshold=0.7
      webgym score runs/a --check
      webgym score runs/a --verdicts verified

    Exit codes: 3, 4, 75.

    See also: webgym judge, webgym inspect-buffer, webgym serve.
    """
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.loop import scoring
    from webgym_cli.rewards.check_scorer import CheckScorer
    from webgym_cli.rewards.selection import plan_scoring

    refuse_both({"--check": check, "--orm": orm is not None, "--verdicts": verdicts is not None})
    ids = read_ids(ids)
    query = build_query(ids, split, iteration, {"--unscored": unscored, "--all": all_})
    directory, settings = resolve(run, options, _settings_of(orm), required=True)
    if not check and verdicts is None:
        settings = scoring.resolve_orm_model(settings)
    scorer = _choose_scorer(settings, verdicts, check=check)
    output = options.open_output()
    plan = plan_scoring(directory, scorer, query)
    if options.dry_run:
        output.show(plan.to_json())
        return
    own_options: dict[str, Any] = {"ids": ids, "check": check, "split": split, "iteration": iteration}
    own_options |= {"verdicts": verdicts and str(verdicts.absolute()), "unscored": unscored, "all_": all_}
    with stage("score", directory, settings, output, own_options) as at:
        summary = at.execute(lambda context: scoring.score(context, plan))
    if isinstance(scorer, CheckScorer) and directory.conditions.is_file():
        # the evaluation's second record, with the new scores
        output.next_step(f"webgym eval {settings.subject} -b {settings.tasks.test} -o {run}")
        return
    output.next_step(f"webgym score {run}" if summary.get("unreadable") else f"webgym inspect-buffer {run}")


def _choose_scorer(settings: Settings, verdicts: Path | None, *, check: bool) -> CheckScorer | OrmScorer:
    from webgym_cli.rewards.check_scorer import CheckScorer
    from webgym_cli.rewards.official_scorer import OfficialScorer
    from webgym_cli.rewards.orm.scorer import OrmScorer

    if verdicts is not None:
        return OfficialScorer(settings, verdicts)
    if check:
        return CheckScorer(settings)
    return OrmScorer(settings.orm)


def _settings_of(orm: str | None) -> dict[str, str]:
    """Return the settings that `--orm` sets."""
    if orm is None:
        return {}
    if orm.startswith(("http://", "https://")):
        return {"orm.base_url": orm, "orm.model": ""}
    from webgym_cli.store.checkpoints import locate_model

    return {"orm.base_url": "", "orm.model": locate_model(Path(orm))}
