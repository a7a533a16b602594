"""`webgym gc`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from webgym_cli.cli.options import DryRunOpt, JsonOpt, RunArg
from webgym_cli.cli.output import Output

_HOUR = 3600.0


GraceOpt = Annotated[
    float, typer.Option("--older-than", metavar="HOURS", min=0, help="Minimum age of what is removed.")
]
DamageOpt = Annotated[
    bool, typer.Option("--even-with-damage", help="Also remove images that only damaged lines may refer to.")
]
RecodeOpt = Annotated[str | None, typer.Option("--recode", hidden=True, help="No effect.")]


def gc(
    run: RunArg,
    older_than: GraceOpt = 1.0,
    even_with_damage: DamageOpt = False,
    recode: RecodeOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Free disk space: remove unreferenced files of a run.

    Removes screenshots that nothing refers to, leftovers of interrupted writes and replaced index files. Nothing
    is removed while a line is damaged, because it may refer to images.

    Examples:
      webgym gc runs/a --dry-run

    Exit codes: 3, 75.

    See also: webgym inspect-buffer.
    """
    from webgym_cli.inspect.gc import find_waste, remove_waste
    from webgym_cli.store.find_run import open_run
    from webgym_cli.store.status import lock_run

    directory, _ = open_run(run)
    output = Output(as_json=json)
    if recode:
        output.note("note: --recode has no effect: screenshots stay PNGs, and re-encoded ones are read as before")
    with nullcontext() if dry_run else lock_run(directory, f"gc {directory.root}"), output.progress() as board:
        grace = older_than * _HOUR
        pieces = find_waste(directory, grace=grace, even_with_damage=even_with_damage, sink=board)
        rows = remove_waste(pieces, dry_run=dry_run).values()
    if json:
        for row in rows:
            output.data({**row, "dry_run": dry_run})
    else:
        title = "would be freed" if dry_run else "freed"
        output.table(title, ("", "files", "bytes"), [(row["kind"], row["files"], row["bytes_freed"]) for row in rows])
    if dry_run:
        output.next_step(f"webgym gc {run}")
