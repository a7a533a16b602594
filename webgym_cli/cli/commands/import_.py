"""`webgym import`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, RunArg, SetOpt
from webgym_cli.cli.output import Output
from webgym_cli.records.groups import Split


class FormatName(StrEnum):
    """Whose files are read."""

    WEBGYM = "webgym"
    WEBRL = "webrl"
    WEBRL_DATA = "webrl-data"
    VISUALAGENTBENCH = "visualagentbench"
    AGENTLAB = "agentlab"
    AUTO = "auto"


FormatArg = Annotated[
    FormatName, typer.Argument(metavar="FORMAT", help="webgym, webrl, webrl-data, visualagentbench, agentlab, auto.")
]
PathArg = Annotated[Path, typer.Argument(metavar="PATH", help="A file of theirs, or a folder that holds such files.")]
SplitOpt = Annotated[Split | None, typer.Option("--split", help="Store them here (default: as their files say).")]
IterationOpt = Annotated[
    int | None, typer.Option("--iteration", min=0, help="Store them there (default: where the policy is).")
]
ImagesOpt = Annotated[
    Path | None, typer.Option("--images", metavar="DIR", help="Where the screenshots are, when not beside the files.")
]


def import_(
    format_: FormatArg,
    path: PathArg,
    run: RunArg,
    split: SplitOpt = None,
    iteration: IterationOpt = None,
    images: ImagesOpt = None,
    config: ConfigOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Bring the episodes of another system into a run.

    The run may be new or known; screenshots and verdicts come along. Pickles are read as data: nothing that they name
    is loaded or called, and what is no record of the format is refused. An episode is imported once, however often the
    command runs. An episode that lacks a screenshot of its prompts is left out and told; episodes of text need none.

    Examples:
      webgym import webgym /data/logs runs/a --dry-run
      webgym import agentlab ~/agentlab_results/2025-01-01_study runs/a
      webgym import webgym train_trajectories.pt.iteration3 runs/a --images /data/logs/images

    Exit codes: 75.

    See also: webgym inspect-buffer, webgym judge, webgym export-sharegpt.
    """
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.imports.execute import Importer, format_import, require_imported
    from webgym_cli.imports.plan import plan_import

    directory, settings = resolve(run, config, set_)
    output = Output.for_events(json)
    plan = plan_import(
        directory, format_.value, path.absolute(), iteration=iteration, split=split, images=images and images.absolute()
    )
    # Who names the split has decided.
    if plan.format.caution and split is None:
        output.note(f"note: {plan.format.caution}")
    if dry_run:
        summary = Importer(plan, directory, lambda event: None, dry=True).execute()
        output.show(summary)
        require_imported(summary, plan)
        return
    options: dict[str, Any] = {"format_": plan.name, "path": str(plan.path), "split": split and split.value}
    options |= {"iteration": iteration, "images": plan.images and str(plan.images)}
    from webgym_cli.records.events import make_event

    with stage("import", directory, settings, output, options) as at:
        summary = Importer(plan, at.run, at.sink).execute()
        at.sink(make_event(**summary, message=format_import(summary)))
    for why, examples in summary["examples"].items():
        output.note(f"  {why}: {examples[0]}")
    require_imported(summary, plan)
    output.next_step(f"webgym inspect-buffer {run}")


def resume_import(run: Path, *, json: bool, dry_run: bool, **options: Any) -> None:
    """Take up an import that was interrupted."""
    images = options.pop("images")
    import_(
        FormatName(options.pop("format_")),
        Path(options.pop("path")),
        run,
        images=Path(images) if images else None,
        json=json,
        dry_run=dry_run,
        **options,
    )
