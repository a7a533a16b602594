"""What a run's settings execute, at the start of a command: recorded, and the Python files copied into the run."""

from __future__ import annotations

import hashlib
from pathlib import Path

from webgym_cli.config.load import flat_values
from webgym_cli.config.model import Settings
from webgym_cli.config.trust import PLACES, remember, select_executed
from webgym_cli.util.files import write_atomic


def record_code(run: Path, folder: Path, settings: Settings, *, own: bool) -> None:
    """Record what this user lets a run execute, and copy the files into a folder, each content once.

    `own`: this user makes the run. Raises `StoreError`.
    """
    values = flat_values(settings)
    remember(run, select_executed(values), own=own)
    names = [*settings.plugins, *settings.agent.tools, *(str(values[key]) for key in PLACES if key != "agent.tools")]
    for file in {Path(name if name.endswith(".py") else name.rpartition(":")[0]) for name in names}:
        if file.suffix == ".py" and file.is_file():
            content = file.read_bytes()
            copy = folder / f"{file.stem}.{hashlib.sha256(content).hexdigest()[:12]}.py"
            if not copy.exists():
                write_atomic(copy, content)
