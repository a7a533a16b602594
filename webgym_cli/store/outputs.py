"""Files that a command writes where its user says: never into a run, never over another file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from webgym_cli.errors import UsageError
from webgym_cli.records.task import Split
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import open_regular

# Bytes at the start of an output file by which a command recognizes its own.
_SAME_START = 120
# Which episode each folder of an export for an official scorer holds.
EXPORTED_EPISODES = "episodes.json"


def refuse_output_in_run(path: Path) -> None:
    """Raise `UsageError` for a user's output file within a run, where it would be read as part of the run."""
    place = Path(os.path.realpath(path))  # `resolve` raises `RuntimeError` for a loop of links
    for run in map(RunDir, (place, *place.parents)):
        if run.provenance.is_file() or any(run.trajectories(split).is_dir() for split in Split):
            raise UsageError(f"{path} is in the run {run.root}", hint="name a file or a folder outside of runs")


def check_output(path: Path, start: bytes) -> None:
    """Raise `UsageError` for a user's output file within a run, and for an existing file of another origin.

    `start`: the beginning of the new content. A file that begins like it is an earlier output of the same command.
    """
    refuse_output_in_run(path)
    if path == Path("-"):  # a file of this name is never meant
        raise UsageError("-: this output is a file, not stdout", hint="name a file")
    try:
        if path.absolute().is_relative_to("/dev"):  # `/dev/stdout` is a link, which a rename would replace
            raise OSError(errno.EINVAL, "it is a device", str(path))
        with open_regular(path) as file:
            before = file.read(_SAME_START)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise UsageError(f"{path}: can't be replaced: {error.strerror}", hint="name another file") from None
    if before and before != start[:_SAME_START]:
        raise UsageError(f"{path}: there is another file already", hint="name another one, or remove it")
