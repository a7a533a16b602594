"""`webgym rollout`."""

from __future__ import annotations

from typing import Annotated

import typer

from webgym_cli.cli import completion as complete
from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, RunArg, SetOpt
from webgym_cli.cli.output import Output
from webgym_cli.config.limits import MAX_EPISODES
from webgym_cli.records.groups import Split

SplitOpt = Annotated[Split, typer.Option("--split", help="Training episodes, or the held-out ones.")]
EpisodesOpt = Annotated[
    int | None, typer.Option("--episodes", min=1, max=MAX_EPISODES, help="How many in all; more than before extends.")
]
PolicyOpt = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="oracle|vllm|URL[,URL...]",
        help="The policy: the scripted expert, our vLLM server, or servers by URL.",
        autocompletion=complete.policies,
    ),
]
MinSuccessOpt = Annotated[
    float | None, typer.Option("--min-success", min=0, max=1, help="Exit with 5 when the success rate is lower.")
]


def rollout(
    run: RunArg,
    split: SplitOpt = Split.TRAIN,
    episodes: EpisodesOpt = None,
    policy: PolicyOpt = None,
    min_success: MinSuccessOpt = None,
    config: ConfigOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Run the episodes that the current iteration owes.

    A trajectory is stored for each in RUN/train_trajectories or RUN/test_trajectories, with its screenshots. The
    seeded plan is written first; run again, it does only what is missing. Infrastructure failures are stored as such
    and tried again; they are never a reward of 0.

    Examples:
      webgym rollout runs/a -c demo --policy oracle --episodes 64
      webgym rollout runs/a --split test --min-success 0.5 --json | jq -r 'select(.reward==1).id'
      webgym rollout runs/a --dry-run

    Exit codes: 3, 4, 5, 75.

    See also: webgym status, webgym judge, webgym prepare, webgym loop.
    """
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.loop.rollout_setup import advise_next, plan_current_rollout, require_success

    directory, settings = resolve(run, config, set_)
    output = Output.for_events(json)
    plan = plan_current_rollout(directory, settings, split, policy or settings.rollout.policy, episodes)
    if dry_run:
        output.show(plan.to_json())
        return
    options = {"split": split.value, "episodes": episodes, "policy": policy, "min_success": min_success}
    with stage("rollout", directory, settings, output, options) as at:
        summary = at.execute(lambda pipeline: pipeline.execute_rollout(plan))
    require_success(summary, min_success)
    output.next_step(advise_next(str(run), summary))
