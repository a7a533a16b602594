"""Settings whose names have changed. The old names still work, with one note each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

# Old dotted key, or section -> its name now.
RENAMED = {
    "browser.settle_seconds": "browser.max_idle_wait",
    "filters.bands": "filters.difficulties",
    "roles": "venvs",
    "rollout.policy_pause": "rollout.policy_cooldown",
    "rollout.policy_pause_max": "rollout.policy_cooldown_max",
    "serve.between_phases": "serve.during_training",
    "train.file_systems": "train.node_storage",
}


class RenamedSettingWarning(FutureWarning):
    """A setting was given under its old name."""


def current_name(key: str) -> str:
    """The name that a dotted key or section has now."""
    for old, new in RENAMED.items():
        if key == old or key.startswith(f"{old}."):
            return new + key[len(old) :]
    return key


def rename_keys(flat: Mapping[str, Any], source: str = "") -> dict[str, Any]:
    """Return settings by dotted key under the names of today, which win over old names beside them.

    `source`: where they come from; empty: nothing is noted.
    """
    renamed = {key: value for key, value in flat.items() if current_name(key) == key}
    for old in flat.keys() - renamed.keys():
        new = current_name(old)
        renamed.setdefault(new, flat[old])
        if source:
            message = f"{source}: {old} is called {new} now (the old name still works)"
            warnings.warn(message, RenamedSettingWarning, stacklevel=2)
    return renamed
