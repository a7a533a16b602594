"""How the processes of `make test` share the tests: files whole, and those of the real stack one after the other."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[1]
STACK = "the real stack"


class Shares(LoadScopeScheduling):
    """A file's tests, with what they have in common, run in one process. vLLM and the trainers take all cores and lock
    what they build, so that no two processes have files of the real stack."""

    def _split_scope(self, nodeid: str) -> str:
        """Return what is run in one process together with this test."""
        file = nodeid.split("::", 1)[0]
        return STACK if runs_the_stack(file) else file


@cache
def runs_the_stack(file: str) -> bool:
    """Return whether any of a file's tests has the marker `stack`."""
    return "mark.stack" in (ROOT / file).read_text(encoding="utf-8")
