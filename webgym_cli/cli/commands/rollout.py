"""`webgym rollout`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from webgym_cli.cli import completion as complete
from webgym_cli.cli.options import MinSuccessOpt, PaidOptions, RunArg
from webgym_cli.config.limits import MAX_EPISODES
from webgym_cli.records.groups import Split

SplitOpt = Annotated[Split, typer.Option("--split", help="Training episodes, or held-out ones (test).")]
EpisodesOpt = Annotated[
    int | None,
    typer.Option("--episodes", min=1, max=MAX_EPISODES, help="Total number of episodes; a larger one adds more."),
]
PolicyOpt = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="oracle|vllm|URL[,URL...]",
        help="Policy: the scripted expert, the run's vLLM server, or servers by URL.",
        autocompletion=complete.choices("oracle", "vllm"),
    ),
]
AgentOpt = Annotated[
    str | None, typer.Option("--agent", metavar="COMMAND", help="Agent that acts in place of webgym's (rollout.agent).")
]
VersionOpt = Annotated[
    int | None, typer.Option("--version", min=0, help="Older policy version to evaluate, with --split test.")
]
AgainOpt = Annotated[
    Literal["given-up"] | None,
    typer.Option("--again", help="given-up: also the episodes that used up their attempts (rollout.max_attempts)."),
]


def rollout(
    run: RunArg,
    options: PaidOptions,
    split: SplitOpt = Split.TRAIN,
    episodes: EpisodesOpt = None,
    policy: PolicyOpt = None,
    agent: AgentOpt = None,
    again: AgainOpt = None,
    version: VersionOpt = None,
    min_success: MinSuccessOpt = None,
) -> None:
    """Run the pending episodes of the current iteration.

    Each episode is stored with its screenshots as a trajectory in RUN/train_trajectories or RUN/test_trajectories. The
    seeded plan is written first; run again, the command does only what is missing. Infrastructure failures are stored
    as failures, never as a reward of 0, and retried.

    Examples:
      webgym rollout runs/a -c demo --policy oracle --episodes 64
      webgym rollout runs/a --split test --min-success 0.5 --json | jq -r 'select(.reward==1).id'
      webgym rollout runs/a --split test --version 2
      webgym rollout runs/a --agent "python my_agent.py"
      webgym rollout runs/a --again given-up --dry-run

    Exit codes: 3, 4, 5, 75, 86.

    See also: webgym status, webgym judge, webgym prepare, webgym loop.
    """
    from webgym_cli.cli.stage import check_command, resolve, stage
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.loop import rollout_setup
    from webgym_cli.loop.rollouts import execute_rollout

    directory, settings = resolve(run, options, {"rollout.agent": agent})
    output = options.open_output()
    acting = policy or settings.rollout.policy
    if version is not None:
        directory = rollout_setup.select_evaluated(directory, version, split, acting)
    plan = rollout_setup.plan_current_rollout(directory, settings, split, acting, episodes, again=again is not None)
    plan = run_async(rollout_setup.note_silent_sites(plan, settings))
    own_options: dict[str, Any] = {"split": split, "episodes": episodes, "policy": policy, "again": again}
    own_options |= {"version": version, "min_success": min_success}
    if options.dry_run:
        check_command("rollout", directory, settings, own_options, output)
        output.show(plan.to_json())
        return
    with stage("rollout", directory, settings, output, own_options) as at:
        summary = at.execute(lambda context: execute_rollout(context, plan))
    rollout_setup.require_success(summary, min_success)
    output.next_step(rollout_setup.advise_next(str(run), summary))
