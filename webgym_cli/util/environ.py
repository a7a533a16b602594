"""The environment that child processes inherit from this one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from webgym_cli.util.secrets import key_variables

# Keys that vLLM, the trainers and their libraries read themselves, whatever else uses them.
_READ_BY_PROGRAMS = re.compile(r"(HF|HUGGING_FACE|VLLM|MODELSCOPE|AWS)_")

_before: dict[str, str] = {}
"""The environment before `lend_variables` changed it; empty: it is unchanged."""


@contextmanager
def lend_variables(**variables: str) -> Iterator[None]:
    """Set variables for a process that can only take them from ours. What else starts meanwhile does not get them."""
    _before.update(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
            if name in _before:
                os.environ[name] = _before[name]
        _before.clear()


def inherited_environ() -> dict[str, str]:
    """Return this process's environment without lent variables."""
    return dict(_before or os.environ)


def environ_without_keys() -> dict[str, str]:
    """Return the environment for programs that need none of the keys of settings, such as a judge's."""
    keys = {name for name in key_variables() if not _READ_BY_PROGRAMS.match(name)}
    return {name: value for name, value in inherited_environ().items() if name not in keys}
