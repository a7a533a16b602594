"""`webgym tasks generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, RunArg, SetOpt
from webgym_cli.cli.output import Output

OutOpt = Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The task file to write.")]


def generate(
    run: RunArg,
    out: OutOpt,
    config: ConfigOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Make new tasks of those that a run failed at.

    A model behind an OpenAI-compatible server is shown failed tasks of one site and asked for new ones like them. Kept
    is what no task of the run says already, what the policy neither can do anyway nor has no chance at (by its critic
    or an outcome reward model, generate.critic), and what can be done on the site at all (by the model,
    generate.feasibility). Each of the others is in FILE.rejected.jsonl with its reason. Every answer is stored in
    FILE.asked.jsonl as it comes, so the same command goes on where it stopped.

    Examples:
      webgym tasks generate runs/a -o new.jsonl -s generate.base_url=http://HOST/v1 -s generate.model=NAME
      webgym tasks generate runs/a -o new.jsonl -s generate.tasks=500 -s generate.requests_per_site=60
      webgym tasks generate runs/a -o new.jsonl --dry-run

    Exit codes: 3, 4, 75.

    See also: webgym score, webgym tasks check, webgym rollout.
    """
    from webgym_cli.cli.run_index import open_run_index
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.curriculum.plan import plan_generation
    from webgym_cli.loop.generation import generate as generate_tasks
    from webgym_cli.loop.generation import resolve_settings
    from webgym_cli.store.run import open_run, refuse_output_in_run
    from webgym_cli.train.critic_scoring import outcome_critic

    open_run(run)
    refuse_output_in_run(out)
    directory, settings = resolve(run, config, set_)
    output = Output.for_events(json)
    if dry_run:
        with open_run_index(directory, output, kept=False) as index:
            plan = plan_generation(directory, settings, index, has_critic=outcome_critic(directory) is not None)
            output.show(plan.to_json())
        return
    with stage("generate", directory, resolve_settings(settings), output, {"out": str(out.absolute())}) as at:
        at.execute(lambda pipeline: generate_tasks(pipeline, out))
    output.next_step(f"webgym tasks check {out}")
