"""YAML without what is easily written by mistake: keys given twice, values within themselves, aliases that explode."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from webgym_cli.errors import UsageError

# Maximum number of values after the expansion of aliases: nine levels of nine aliases are 387 million.
MAX_VALUES = 100_000


_INT, _FLOAT, _TIME, _BOOL, _TEXT = (
    f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp", "bool", "str")
)


class _Loader(yaml.SafeLoader):
    """Reads numbers as JSON and YAML 1.2 do. In YAML 1.1 `1e-6` is a text, `12:30` is 750 and `01234` is 668."""


_Loader.yaml_implicit_resolvers = {
    first: [one for one in resolvers if one[0] not in (_INT, _FLOAT, _TIME)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INT, re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _FLOAT, re.compile(r"[-+]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?$", re.ASCII), list("-+.0123456789")
)


class _DataLoader(_Loader):
    """Refuses `yes`, `no`, `on` and `off` without quotes: in a list of countries Norway's `NO` would be false."""

    def construct_truth(self, node: yaml.ScalarNode) -> bool:
        """Return the truth value of `true` and `false`. Raises `yaml.MarkedYAMLError` for the others."""
        if node.value.lower() not in ("true", "false"):
            problem = f"{node.value} is a truth value to some: quote it, or write true or false"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return bool(self.construct_yaml_bool(node))


_DataLoader.add_constructor(_BOOL, _DataLoader.construct_truth)


def load_yaml(text: str, *, is_data: bool = False) -> Any:
    """Parse a YAML text. Raises `yaml.YAMLError`, also for a key that is given twice and for too many values.

    `is_data`: its values have no types by which an unquoted `no` could be known to be a text or false.
    """
    loader = (_DataLoader if is_data else _Loader)(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _count(node, {}) > MAX_VALUES:
            raise yaml.YAMLError(f"more than {MAX_VALUES} values, with what its aliases repeat")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def read_yaml(path: Path, kind: type[UsageError] = UsageError, hint: str = "", *, is_data: bool = False) -> Any:
    """Return the content of a YAML file. Raises an error of this kind that names the file and the line.

    `is_data`: see `load_yaml`. Raises also `OSError`, `ValueError` (not UTF-8, a number of 5,000 digits) and
    `RecursionError`: only the caller knows what it reads.
    """
    text = path.read_text(encoding="utf-8-sig")
    try:
        return load_yaml(text, is_data=is_data)
    except yaml.YAMLError as error:
        place, reason = _describe(error, text)
        raise kind(f"{path}{place}: not YAML: {' '.join(reason.split())}", hint=hint) from None


def _describe(error: yaml.YAMLError, text: str) -> tuple[str, str]:
    """Return `:LINE`, empty where it is unknown, and the reason."""
    if isinstance(error, yaml.reader.ReaderError):  # a control character; its second line counts characters
        line = text.count("\n", 0, error.position) + 1
        return f":{line}", str(error).partition("\n")[0]
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark and error.problem:
        # Some problems are the second half of a sentence: "expected a single document in the stream", "but found ..."
        return f":{error.problem_mark.line + 1}", ", ".join(filter(None, (error.context, error.problem)))
    return "", str(error)


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values; each node is walked once."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = 0  # until all its parts are counted
        if isinstance(node, yaml.MappingNode):
            _refuse_repeated_keys(node)
            parts = list(chain.from_iterable(node.value))
        else:
            parts = node.value
        known[id(node)] = 1 + sum(_count(part, known) for part in parts)
    elif not known[id(node)]:
        raise yaml.MarkedYAMLError(problem="a value is within itself", problem_mark=node.start_mark)
    return known[id(node)]


def _refuse_repeated_keys(node: yaml.MappingNode) -> None:
    keys: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.tag == _BOOL:  # a site or an account that is called `no`
                key.tag = _TEXT
            if (key.tag, key.value) in keys:  # the last one would replace the others without a word
                raise yaml.MarkedYAMLError(problem=f"{key.value} is given twice", problem_mark=key.start_mark)
            keys.add((key.tag, key.value))
