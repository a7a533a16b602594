"""Which environments there are."""

from __future__ import annotations

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.errors import UsageError

ENVIRONMENTS = ("miniwob",)
"""The environments that can be made."""


def make_pool(settings: Settings, environment: str) -> EnvironmentPool:
    """Return a pool, not yet started, that makes environments of this name in the settings' interaction mode."""
    if environment == "miniwob":
        from webgym_cli.environments.miniwob import MiniWobPool

        return MiniWobPool(settings, settings.context_config.interaction_mode)
    raise UsageError(
        f"there is no environment {environment!r}; there is: {', '.join(ENVIRONMENTS)}",
        hint="correct the tasks' field `environment`",
    )
