"""Names of settings in verl, AgentFly and WebGym that differ here: the answer to such an unknown setting."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path

from webgym_cli.config.renamed import REMOVED

_TABLES = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
# Sections that are elsewhere here and whose settings keep their names.
MOVED: dict[str, str] = _TABLES.pop("moved sections")
# A dotted key or section there -> the setting here, or what to use instead. Longer entries win over their section.
FOREIGN: dict[str, str] = _TABLES["verl"] | _TABLES["AgentFly"] | _TABLES["WebGym"]


def answer_foreign(key: str, keys: Collection[str]) -> tuple[str, str]:
    """Return our setting for another system's dotted key, and the suffix for a message; each is empty if unknown."""
    key = re.sub(r"^agent\.(init|run)_config\.", "agent.", key.lstrip("+~"))  # Hydra's marks; AgentFly's own sections
    parts = key.split(".")
    for depth in range(len(parts), 0, -1):
        section, rest = ".".join(parts[:depth]), parts[depth:]
        for moved in (FOREIGN.get(section, ""), MOVED.get(section, "")):
            ours = ".".join((moved, *rest))
            if ours in keys:
                return ours, f"; it is {ours!r} here"
            if ours in REMOVED:
                return "", f": {REMOVED[ours].instead}"
        if words := FOREIGN.get(section):
            is_section = any(known.startswith(f"{words}.") for known in keys)
            return "", f"; it is in {words!r} here" if is_section else f": {words}"
    return "", ""
