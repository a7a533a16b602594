"""Command-line arguments of other programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest


def read_arguments(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the arguments with their values, or with the word after them; vLLM takes `_` in a name for `-`."""
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, given, value = argument.partition("=")
        yield name.replace("_", "-"), (value if given else following)
