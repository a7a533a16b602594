"""`webgym export-sharegpt`."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from webgym_cli.cli.ids import IdsArg, read_ids
from webgym_cli.cli.options import ConfigOpt, RunArg, SetOpt
from webgym_cli.cli.output import Output


class Format(StrEnum):
    """The form of the file."""

    JSON = "json"
    JSONL = "jsonl"


FormatOpt = Annotated[Format, typer.Option("--format", help="One JSON array, or JSON Lines.")]
OutOpt = Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write there, not to stdout.")]
ImagesOpt = Annotated[
    Path | None,
    typer.Option("--copy-images", metavar="DIR", help="Copy the screenshots there; else the run's are named."),
]


def export_sharegpt(
    run: RunArg,
    ids: IdsArg = None,
    format_: FormatOpt = Format.JSON,
    out: OutOpt = None,
    copy_images: ImagesOpt = None,
    config: ConfigOpt = None,
    set_: SetOpt = None,
) -> None:
    """Write trajectories as ShareGPT records, one for each usable step, as LLaMA-Factory reads them.

    Without ids: every trajectory that prepare would use.

    Examples:
      webgym export-sharegpt runs/a --format jsonl -o sft.jsonl --copy-images sft_images
      webgym inspect-buffer runs/a --reward 1 -q | webgym export-sharegpt runs/a - > sft.json
    """
    from webgym_cli.cli.stage import resolve
    from webgym_cli.prepare.export import export
    from webgym_cli.store.files import write_atomic
    from webgym_cli.store.run import open_run

    open_run(run)
    directory, settings = resolve(run, config, set_)
    output = Output()
    count = 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal count
        for record in export(directory, settings, read_ids(ids), copy_images):
            count += 1
            yield record

    lines = _lines(counted(), format_)
    if out:
        write_atomic(out, "".join(f"{line}\n" for line in lines))
    else:
        for line in lines:
            output.text(line)
    output.note(f"{count} records")


def _lines(records: Iterable[dict[str, Any]], format_: Format) -> Iterator[str]:
    if format_ is Format.JSONL:
        yield from (json_format.dumps(record, ensure_ascii=False) for record in records)
        return
    before = "["
    for record in records:
        yield f"{before}{json_format.dumps(record, ensure_ascii=False, indent=1)}"
        before = ","
    yield "]" if before == "," else "[]"
