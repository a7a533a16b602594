"""The base of every section of the settings."""

from __future__ import annotations

from pydantic import ConfigDict

from webgym_cli.util.documented import DocumentedModel


class ConfigSection(DocumentedModel):
    """A frozen group of settings that refuses unknown keys."""

    # NaN and infinity: the settings are stored as JSON, which has neither.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
