"""`webgym import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli import completion as complete
from webgym_cli.cli.options import RunArg, StageOptions
from webgym_cli.records.groups import Split

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings

FormatArg = Annotated[
    str,
    typer.Argument(
        metavar="FORMAT",
        help="run, messages, openwebrl, fara, molmoweb, cuaverifierbench, agentrewardbench, webvoyager, "
        "online-mind2web, webgym, webrl, webrl-data, visualagentbench, auto; or one of your plugins.",
        autocompletion=complete.registry_names("webgym_cli.imports.registry:IMPORT_FORMATS", "auto"),
    ),
]
PathArg = Annotated[Path, typer.Argument(metavar="PATH", help="File of that format, or a folder of it.")]
SplitOpt = Annotated[Split | None, typer.Option("--split", help="Split of the episodes (default: as in the files).")]
IterationOpt = Annotated[
    int | None, typer.Option("--iteration", min=0, help="Iteration of the episodes (default: the current one).")
]
ImagesOpt = Annotated[
    Path | None, typer.Option("--images", metavar="DIR", help="Folder of the screenshots, if not beside the files.")
]
WhereOpt = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="Only the episodes of a run that match an SQL condition.")
]


def import_(
    format_: FormatArg,
    path: PathArg,
    run: RunArg,
    options: StageOptions,
    split: SplitOpt = None,
    iteration: IterationOpt = None,
    images: ImagesOpt = None,
    where: WhereOpt = None,
) -> None:
    """Import episodes of another system or of another run.

    The run may be new or existing; screenshots and verdicts are imported too, and each episode once. Pickles are read
    as data: nothing that they name is loaded or called.

    Examples:
      webgym import webgym /data/logs runs/a --dry-run
      webgym import messages episodes.jsonl runs/a --images shots/
      webgym import webrl results/ runs/w -c webrl
      webgym import run runs/a runs/b --where "success AND policy = 'oracle'"

    Exit codes: 75.

    See also: webgym inspect-buffer, webgym judge, webgym export-sharegpt.
    """
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.imports.execute import Importer
    from webgym_cli.imports.plan import format_import, plan_import, require_imported
    from webgym_cli.records.events import make_event
    from webgym_cli.util.registry import absolute_place

    directory, settings = resolve(run, options)
    output = options.open_output()
    choices: dict[str, Any] = {"iteration": iteration, "split": split, "where": where}
    choices |= {"images": images and images.absolute()}
    plan = plan_import(directory, format_, path.absolute(), **_describe_run(settings), **choices)
    if plan.format.caution and split is None:  # an explicit --split needs no caution
        output.note(f"note: {plan.format.caution}")
    if options.dry_run:
        output.show(summary := Importer(plan, directory, lambda event: None, dry=True).execute())
        require_imported(summary, plan)
        return
    own_options = {"format_": absolute_place(plan.name), "path": plan.path, **choices, "images": plan.images}
    with stage("import", directory, settings, output, own_options) as at:
        summary = Importer(plan, at.run, at.sink).execute()
        at.sink(make_event(**summary, message=format_import(summary)))
    for why, examples in summary["examples"].items():
        output.note(f"  {why}: {examples[0]}")
    require_imported(summary, plan)
    output.next_step(f"webgym inspect-buffer {run}")


def _describe_run(settings: Settings) -> dict[str, Any]:
    """Return what imported episodes get of the run: the prompt parameters of its policy, and its threshold."""
    from webgym_cli.agent.actions.action_sets import ACTION_SETS
    from webgym_cli.records.trajectory import PromptSpec

    context = settings.context_config
    prompt = PromptSpec(
        version=context.prompt_version,
        system_prompt=settings.agent.system_prompt,
        options=ACTION_SETS.find(str(context.prompt_version)).prompt_options(settings),
        call_format=settings.agent.call_format,
        history_window=context.history_window,
        max_images=context.max_images,
    )
    return {"prompt": prompt, "success_threshold": settings.rollout.success_threshold}
