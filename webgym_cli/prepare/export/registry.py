"""Export formats: their definition, decorator and registry."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from webgym_cli.errors import UsageError
from webgym_cli.prepare.export.options import ExportObjective, ExportOptions, ExportUnit
from webgym_cli.prepare.export.outputs import ExportOutput
from webgym_cli.prepare.sft.convert import Example
from webgym_cli.records.dataset import TRAIN
from webgym_cli.util.registry import Registry

# Writes all examples. They are generated lazily: keep no more than a few.
WriteExamples = Callable[[Iterator[Example], ExportOutput], None]


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One export format."""

    name: str
    description: str
    """First line of its docstring."""
    write: WriteExamples
    file_name: str | None
    """Name of the data file within an exported folder; None: the format writes several files."""
    embeds_images: bool
    """Whether it supports embedded images as data URLs (--embed-images)."""
    objectives: frozenset[ExportObjective]
    """Supported objectives."""
    dataset_entry: Mapping[str, Any] | None
    """Its entry in LLaMA-Factory's `dataset_info.json` for `sft`; None: LLaMA-Factory can't read it."""
    unit: ExportUnit | None = None
    """The only unit of its records; None: that of --unit. A format of whole trajectories gets all that did not fail."""
    with_tokens: bool = False
    """Whether its examples have the tokens of each call; others are left out."""

    def refuse(self, options: ExportOptions) -> None:
        """Raise `UsageError` for unsupported options."""
        if options.objective not in self.objectives:
            raise UsageError(
                f"--format {self.name} has no form for --objective {options.objective}", hint="--format messages"
            )
        if options.embed_images and not self.embeds_images:
            raise UsageError(f"--embed-images belongs to --format openai, not {self.name}; hf always holds the images")
        if options.copy_images and self.file_name is None:
            raise UsageError("--copy-images: the images are inside the records already")
        if options.shard_megabytes and self.file_name is not None:
            raise UsageError(f"--shard-size has no effect: {self.name} is one file", hint="--format hf")

    def build_dataset_info(self, objective: ExportObjective) -> dict[str, Any] | None:
        """Return the `dataset_info.json` of an exported folder for LLaMA-Factory."""
        if self.dataset_entry is None:
            return None
        entry: dict[str, Any] = {"file_name": self.file_name, **self.dataset_entry}
        if objective is ExportObjective.DPO:
            entry["ranking"] = True
            entry["columns"] = {**entry["columns"], "chosen": "chosen", "rejected": "rejected"}
        if objective is ExportObjective.KTO:
            entry["columns"] = {**entry["columns"], "kto_tag": "kto_tag"}
        return {TRAIN: entry}


def export_format(
    name: str,
    *,
    file_name: str | None = "train.jsonl",
    embeds_images: bool = False,
    objectives: frozenset[ExportObjective] = frozenset(ExportObjective),
    dataset_entry: Mapping[str, Any] | None = None,
    unit: ExportUnit | None = None,
    with_tokens: bool = False,
) -> Callable[[WriteExamples], ExportFormat]:
    """Make an export format from a function that writes examples, and register it unless it is built in."""

    def decorate(write: WriteExamples) -> ExportFormat:
        description = inspect.cleandoc(write.__doc__ or "").partition("\n")[0]
        form = (file_name, embeds_images, objectives, dataset_entry, unit, with_tokens)
        item = ExportFormat(name, description, write, *form)
        # Built-in formats are imported by location, so that --help does not import pyarrow.
        return item if name in FORMATS.builtin else FORMATS.register(name, item)

    return decorate


_PACKAGE = "webgym_cli.prepare.export"
FORMATS: Registry[ExportFormat] = Registry(
    noun="export format",
    setting="--format",
    item_type=ExportFormat,
    usage='from webgym_cli.prepare.export.registry import export_format, and put @export_format("name") over it',
    builtin={
        "json": f"{_PACKAGE}.formats:write_json_array",
        "jsonl": f"{_PACKAGE}.formats:write_json_lines",
        "messages": f"{_PACKAGE}.formats:write_messages",
        "openai": f"{_PACKAGE}.formats:write_openai",
        "hf": f"{_PACKAGE}.shards:write_parquet",
        "openenv": f"{_PACKAGE}.formats:write_training_traces",
        "atif": f"{_PACKAGE}.formats:write_atif",
        "online-mind2web": f"{_PACKAGE}.scorers:write_om2w",
        "webarena-verified": f"{_PACKAGE}.scorers:write_webarena_verified",
        "webvoyager": f"{_PACKAGE}.scorers:write_webvoyager",
    },
)
