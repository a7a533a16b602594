"""`webgym tasks generate`."""

from __future__ import annotations

from webgym_cli.cli.commands.expand import OutOpt
from webgym_cli.cli.options import RunArg, StageOptions


def generate(run: RunArg, options: StageOptions, out: OutOpt) -> None:
    """Generate new tasks from the failed tasks of a run.

    A model gets failed tasks of a site and generates similar ones, which are filtered (generate.critic,
    generate.feasibility). Rejected tasks are in FILE.rejected.jsonl, with reasons. Run again, it continues.

    Examples:
      webgym tasks generate runs/a -o new.jsonl -s generate.base_url=http://HOST/v1 -s generate.model=NAME
      webgym tasks generate runs/a -o new.jsonl -s generate.tasks=500 -s generate.requests_per_site=60
      webgym tasks generate runs/a -o new.jsonl --dry-run

    Exit codes: 3, 4, 75.

    See also: webgym score, webgym tasks check, webgym rollout.
    """
    from webgym_cli.cli.run_index import open_run_index
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.loop.generation import generate as generate_tasks
    from webgym_cli.loop.generation import plan_next, resolve_settings, sibling_path
    from webgym_cli.store.outputs import check_output, refuse_output_in_run

    refuse_output_in_run(out)
    if not sibling_path(out, "asked").is_file():  # an earlier generation's file has its responses beside it
        check_output(out, b"")
    directory, settings = resolve(run, options, required=True)
    output = options.open_output()
    if not options.dry_run:
        settings = resolve_settings(settings)
    with open_run_index(directory, output, kept=not options.dry_run) as index:
        plan = plan_next(directory, settings, index)
    if options.dry_run:
        output.show(plan.to_json())
        return
    with stage("generate", directory, settings, output, {"out": out.absolute()}) as at:
        at.execute(lambda context: generate_tasks(context, plan, out))
    output.next_step(f"webgym tasks check {out}")
