"""`webgym gc`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from webgym_cli.cli.options import DryRunOpt, JsonOpt, RunArg
from webgym_cli.cli.output import Output
from webgym_cli.errors import UsageError

if TYPE_CHECKING:
    from webgym_cli.records.events import EventSink
    from webgym_cli.store.run import RunDir

_HOUR = 3600.0


GraceOpt = Annotated[
    float, typer.Option("--older-than", metavar="HOURS", min=0, help="Minimum age of what is removed.")
]
DamageOpt = Annotated[
    bool, typer.Option("--even-with-damage", help="Also remove images that only damaged lines may refer to.")
]
RecodeOpt = Annotated[
    Literal["webp"] | None,
    typer.Option("--recode", help="Then re-encode PNGs losslessly; each pixel is compared before a PNG is removed."),
]
WorkersOpt = Annotated[
    int | None, typer.Option("--workers", min=1, help="Re-encoding threads (default: one per core).")
]


def gc(
    run: RunArg,
    older_than: GraceOpt = 1.0,
    even_with_damage: DamageOpt = False,
    recode: RecodeOpt = None,
    workers: WorkersOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Free disk space: remove unreferenced files of a run.

    Removes screenshots that nothing refers to, leftovers of interrupted writes and replaced index files. Nothing
    is removed while a line is damaged, because it may refer to images.

    Examples:
      webgym gc runs/a --dry-run
      webgym gc runs/a --recode webp

    Exit codes: 3, 75.

    See also: webgym inspect-buffer.
    """
    from webgym_cli.inspect.gc import find_waste, remove_waste
    from webgym_cli.store.lock import lock_run
    from webgym_cli.store.run import open_run

    if workers and not recode:
        raise UsageError("--workers is for --recode", hint=f"webgym gc {run} --recode webp --workers {workers}")
    directory, _ = open_run(run)
    output = Output(as_json=json)
    with (
        nullcontext() if dry_run else lock_run(directory, f"gc {directory.root}"),
        output.progress() as board,
    ):
        grace = older_than * _HOUR
        pieces = find_waste(directory, grace=grace, even_with_damage=even_with_damage, sink=board)
        freed = remove_waste(pieces, dry_run=dry_run)
        rows = [{"kind": kind.value, "files": it.files, "bytes_freed": it.bytes} for kind, it in freed.items()]
        if recode:
            rows += _recode(directory, workers, board, output, dry_run=dry_run)
    if json:
        for row in rows:
            output.data({**row, "dry_run": dry_run})
    else:
        title = "would be freed" if dry_run else "freed"
        output.table(title, ("", "files", "bytes"), [(row["kind"], row["files"], _describe_bytes(row)) for row in rows])
    if dry_run:
        output.next_step(f"webgym gc {run}{' --recode webp' if recode else ''}")


def _describe_bytes(row: dict[str, Any]) -> str:
    freed = row["bytes_freed"]
    return f"some of {row['bytes_before']}" if freed is None else str(freed)


def _recode(
    run: RunDir, workers: int | None, sink: EventSink, output: Output, *, dry_run: bool
) -> list[dict[str, Any]]:
    """Re-encode screenshots, or count them with `dry_run`; the freed space is known only afterwards."""
    from webgym_cli.inspect.recode import execute, plan_recoding

    todo = list(plan_recoding(run))
    if dry_run:
        images, size = sum(part.images for part in todo), sum(part.bytes for part in todo)
        return [{"kind": "PNGs to re-encode", "files": images, "bytes_freed": None, "bytes_before": size}]
    saved = execute(run, todo, workers=workers, sink=sink)
    for path in saved.altered:
        output.note(f"left as it is: {path}: its content doesn't match its name")
    sizes = {"bytes_before": saved.bytes_before, "bytes_after": saved.bytes_after}
    freed = saved.bytes_before - saved.bytes_after
    return [
        {"kind": "re-encoded images", "files": saved.recoded, "bytes_freed": freed, **sizes},
        {"kind": "PNGs kept", "files": saved.kept, "bytes_freed": 0},
    ]
