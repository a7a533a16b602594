"""YAML without what is easily written by mistake: keys given twice, values within themselves, aliases that explode."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

# Maximum number of values after the expansion of aliases: nine levels of nine aliases are 387 million.
MAX_VALUES = 100_000


class _ConfigLoader(yaml.SafeLoader):
    """Reads `1e-6` as a number, as YAML 1.2 and JSON do; in YAML 1.1 a float has a point and a signed exponent."""


_ConfigLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def load_config(text: str) -> Any:
    """Parse the YAML text of settings, in which `1e-6` is a number; else as `load_yaml`."""
    return load_yaml(text, _ConfigLoader)


def load_yaml(text: str, loader_class: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """Parse a YAML text. Raises `yaml.YAMLError`, also for a key that is given twice and for too many values."""
    loader = loader_class(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _count(node, {}) > MAX_VALUES:
            raise yaml.YAMLError(f"more than {MAX_VALUES} values, with what its aliases repeat")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def describe_yaml_error(path: Path, error: yaml.YAMLError) -> str:
    """Return the message on a file that is not YAML, with the line."""
    mark = getattr(error, "problem_mark", None)
    place = f"{path}:{mark.line + 1}" if mark else str(path)
    return f"{place}: not YAML: {getattr(error, 'problem', None) or error}"


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values; each node is walked once."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = 0  # until all its parts are counted
        if isinstance(node, yaml.MappingNode):
            _refuse_repeated_keys(node)
            parts = [part for pair in node.value for part in pair]
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
            if (key.tag, key.value) in keys:  # the last one would replace the others without a word
                raise yaml.MarkedYAMLError(problem=f"{key.value} is given twice", problem_mark=key.start_mark)
            keys.add((key.tag, key.value))
