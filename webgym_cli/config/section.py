"""The base of every section of the settings, and the dotted keys of one."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict

from webgym_cli.util.documented import DocumentedModel


class ConfigSection(DocumentedModel):
    """A frozen group of settings that refuses unknown keys."""

    # NaN and infinity: the settings are stored as JSON, which has neither.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@cache
def keys_of(model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """Return every dotted key of a model with its field, without sections."""
    keys: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys.update(keys_of(kind, f"{prefix}{name}."))
        else:
            keys[f"{prefix}{name}"] = field
    return keys
