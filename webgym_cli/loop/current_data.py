"""The kind of training data of a run's current iteration."""

from __future__ import annotations

from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.prepare.data import PREPARED_DATA, PreparedData
from webgym_cli.store.run import RunDir
from webgym_cli.train.registry import current_backend


def current_data(run: RunDir, settings: Settings) -> PreparedData[Any]:
    """Return what the backend of the run's current iteration trains on."""
    return PREPARED_DATA.find(current_backend(run, settings).data)
