"""An index in a temporary folder, for users without write access to the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from webgym_cli.store.run import RunDir
from webgym_cli.util.temporary_folder import TemporaryFolder


@dataclass(frozen=True, slots=True)
class _RunWithTemporaryIndex(RunDir):
    """A run with its index in another folder."""

    folder: Path = field(kw_only=True)

    @property
    def index(self) -> Path:
        """The temporary folder."""
        return self.folder


@contextmanager
def temporary_index(run: RunDir) -> Iterator[RunDir]:
    """Yield the run with a temporary index, which starts with links to the run's own fragments."""
    with TemporaryFolder("index") as folder:
        for fragment in run.index.rglob("*.parquet"):
            link = folder / fragment.relative_to(run.index)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(fragment)
        yield _RunWithTemporaryIndex(run.root, run.newest, folder=folder)
