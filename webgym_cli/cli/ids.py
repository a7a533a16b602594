"""Trajectory ids on the command line and on stdin."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Annotated

import typer

from webgym_cli.errors import UsageError

IdsArg = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Trajectory ids; - reads them from stdin.")]


def read_ids(ids: list[str] | None) -> list[str] | None:
    """Return the ids; `-` is replaced by those on stdin, plain or as JSON Lines with `id`. None without arguments."""
    if not ids:
        return None
    return list(chain.from_iterable(_read_stdin() if name == "-" else [name] for name in ids))


def _read_stdin() -> Iterator[str]:
    for line in map(str.strip, sys.stdin):
        if line.startswith("{"):
            try:
                yield str(json.loads(line)["id"])
            except (ValueError, RecursionError) as error:
                raise UsageError(f"stdin: neither an id nor JSON: {error}") from None
            except KeyError:
                raise UsageError("stdin: a line of JSON without id", hint="webgym inspect-buffer RUN -q") from None
        elif line:
            yield line
