"""`webgym export-sharegpt`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from webgym_cli.cli import completion as complete
from webgym_cli.cli.commands.inspect_buffer import SelectionOptions
from webgym_cli.cli.options import DryRunOpt, IdsArg, RunArg, SettingsOptions, read_ids
from webgym_cli.cli.output import Output
from webgym_cli.errors import StoreError, UsageError, WebGymError
from webgym_cli.prepare.export.options import ExportObjective, ExportOptions, ExportUnit

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings
    from webgym_cli.prepare.export.export import Export, ExportStats
    from webgym_cli.store.run import RunDir

FormatOpt = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="json, jsonl: ShareGPT; messages: role and content; openai: images as parts; "
        "hf: a folder for load_dataset; openenv, atif: whole episodes with their tokens; "
        "online-mind2web, webvoyager, webarena-verified: folders for the official scorers; "
        "or one of your plugins.",
        autocompletion=complete.registry_names("webgym_cli.prepare.export.registry:FORMATS"),
    ),
]
UnitOpt = Annotated[
    ExportUnit,
    typer.Option(
        "--unit",
        help="step: one record per step, as it was served; trajectory: one conversation per trajectory, with all "
        "rounds in full and the reasoning of all responses.",
    ),
]
ObjectiveOpt = Annotated[
    ExportObjective,
    typer.Option(
        "--objective",
        help="sft; dpo: responses of successes against those of failures to the same prompt; "
        "kto: responses labelled by success.",
    ),
]
PairsOpt = Annotated[
    int | None, typer.Option("--max-pairs-per-task", min=1, help="dpo: maximum number of pairs per task (default: 16).")
]
OutOpt = Annotated[
    Path | None,
    typer.Option(
        "-o", "--out", metavar="PATH", help="Output file, or without a suffix a new folder with dataset_info.json."
    ),
]
ImagesOpt = Annotated[
    Path | None,
    typer.Option("--copy-images", metavar="DIR", help="Copy the screenshots to DIR (default: refer to the run's)."),
]
EmbedOpt = Annotated[bool, typer.Option("--embed-images", help="openai: embed the images as data URLs.")]
ShardOpt = Annotated[
    int | None, typer.Option("--shard-size", metavar="MB", min=1, help="hf: shard size (default: 500).")
]
StrictOpt = Annotated[bool, typer.Option("--strict", help="Exit with 1 if anything is damaged or missing.")]


def export_sharegpt(
    run: RunArg,
    options: SettingsOptions,
    selection: SelectionOptions,
    ids: IdsArg = None,
    format_: FormatOpt = "json",
    unit: UnitOpt = ExportUnit.STEP,
    objective: ObjectiveOpt = ExportObjective.SFT,
    max_pairs: PairsOpt = None,
    out: OutOpt = None,
    copy_images: ImagesOpt = None,
    embed_images: EmbedOpt = False,
    shard_size: ShardOpt = None,
    strict: StrictOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Write trajectories as a dataset for other trainers.

    Writes to stdout or --out. Without ids, all trajectories that pass prepare's filters are exported, of the training
    split unless --split is given; for dpo and kto the failures of the same tasks too.

    Examples:
      webgym export-sharegpt runs/a --format jsonl -o sft.jsonl --copy-images sft_images
      webgym export-sharegpt runs/a --format hf -o sft_dataset
      webgym export-sharegpt runs/a --objective dpo --format messages -o dpo
      webgym inspect-buffer runs/a --reward 1 -q | webgym export-sharegpt runs/a - > sft.json

    Exit codes: 3.

    See also: webgym prepare, webgym inspect-buffer, webgym import.
    """
    from webgym_cli.prepare.export.export import Export

    directory, settings = _resolve(run, options, format_)
    chosen = ExportOptions(format_, unit, objective, copy_images, embed_images, shard_size, max_pairs)
    query = selection.to_query(expression=selection.where)
    output, export = Output(), Export(directory, settings, chosen, read_ids(ids), query, out)
    if dry_run:
        _plan(export, output)
        return
    with output.progress() as board:
        stats = export.execute(output.text, board)
    _show_summary(output, stats)
    _require_exported(directory, stats, strict=strict)


def _resolve(run: Path, options: SettingsOptions, format_: str) -> tuple[RunDir, Settings]:
    """Return the run and its settings; its plugins are imported if they are needed."""
    from webgym_cli.agent.actions.action_sets import ACTION_SETS, CALL_FORMATS
    from webgym_cli.cli.stage import resolve
    from webgym_cli.config.model_defaults import AUTO
    from webgym_cli.config.trust import is_own
    from webgym_cli.prepare.export.registry import FORMATS

    if format_ == "webdataset":
        raise UsageError("--format webdataset is no format any more: hf writes shards too", hint="--format hf")
    directory, settings = resolve(run, options, required=True, executes=False)
    if ":" not in format_ and format_ not in FORMATS.names():
        needed = bool(settings.plugins)
    else:  # to render the prompts of a run made here
        rendered = settings.context_config.prompt_version in ACTION_SETS.names()
        called = settings.agent.call_format in (AUTO, *CALL_FORMATS.names())
        needed = not (rendered and called) and is_own(directory.root)
    return resolve(run, options, required=True) if needed else (directory, settings)


def _require_exported(run: RunDir, stats: ExportStats, *, strict: bool) -> None:
    if strict and stats.damaged:
        raise StoreError(
            f"{run.root}: {stats.damaged} lines or records are damaged or lack screenshots, and were left out",
            hint=f"webgym inspect-buffer {run.root} --verify",
        )
    if not stats.records:
        raise WebGymError(f"{run.root}: nothing was exported", hint=f"webgym inspect-buffer {run.root}")


def _plan(export: Export, output: Output) -> None:
    """Show what would be exported."""
    from dataclasses import asdict

    from webgym_cli.cli.run_index import open_run_index
    from webgym_cli.prepare.export.export import build_condition

    with open_run_index(export.run, output, kept=False) as index:
        where, values = build_condition(index, export)
        chosen = index.one(f"SELECT count(*) AS trajectories FROM trajectories WHERE {where}", values)
    options = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(export.options).items()}
    plan = {"event": "plan", "stage": "export-sharegpt", "out": export.out and str(export.out)}
    Output.for_events(False).show({**plan, **chosen, **options})


def _show_summary(output: Output, stats: ExportStats) -> None:
    output.note(f"{stats.records} records")
    if stats.dropped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(stats.dropped.items()))
        output.note(f"left out: {reasons}")
    if stats.unfit_turns:
        output.note(f"turns within that prepare would not train on: {stats.unfit_turns}")
    for problem in stats.problems:
        output.note(f"damaged: {problem}")
