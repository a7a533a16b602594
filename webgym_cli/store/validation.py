"""Refusal of stored records that this version can't read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from webgym_cli.errors import StoreError
from webgym_cli.records.base import describe_invalid


@contextmanager
def refuse_invalid(what: str, hint: str) -> Iterator[None]:
    """Convert a `ValidationError` in the block to a `StoreError`: `what`, and the first problem."""
    try:
        yield
    except ValidationError as error:
        raise StoreError(f"{what}: {describe_invalid(error)}", hint=hint) from error
