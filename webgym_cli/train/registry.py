"""Registry of the algorithms for `train.algorithm`, each with its training backend."""

from __future__ import annotations

from webgym_cli.config.estimators import ESTIMATORS
from webgym_cli.config.model import Settings
from webgym_cli.errors import SettingsError
from webgym_cli.store.checkpoints import algorithm
from webgym_cli.store.run import RunDir
from webgym_cli.train.backend import TrainingBackend
from webgym_cli.util.registry import Registry, suggest_name

# Backends by algorithm; advantage estimators share one (`find_backend`).
BACKENDS: Registry[TrainingBackend] = Registry(
    noun="training backend",
    setting="train.algorithm",
    item_type=TrainingBackend,
    builtin={
        "sft": "webgym_cli.train.llamafactory.backend:LLAMAFACTORY",
        "webrl": "webgym_cli.train.policy_gradient.backend:WEBRL",
    },
    usage="BACKENDS.register(NAME, TrainingBackend(...)) of webgym_cli.train.registry",
)

_POLICY_GRADIENT = "webgym_cli.train.policy_gradient.backend:POLICY_GRADIENT"


def find_backend(name: str) -> TrainingBackend:
    """Return the backend of an algorithm. Raises `UsageError`, or `SettingsError` for an unknown name."""
    # first those that need no look at the installed packages
    if name in BACKENDS.builtin:
        return BACKENDS.find(name)
    if name in ESTIMATORS.builtin or name in ESTIMATORS.names():
        return BACKENDS.find(_POLICY_GRADIENT)
    if ":" in name or name in BACKENDS.names():
        return BACKENDS.find(name)
    known = sorted({*BACKENDS.names(), *ESTIMATORS.names()})
    raise SettingsError(
        f"train.algorithm: there is no training backend or advantage estimator {name!r}",
        hint=f"{suggest_name(name, known)} (the setting plugins adds your own)",
    )


def current_backend(run: RunDir, settings: Settings) -> TrainingBackend:
    """Return the backend that trains in the run's current iteration."""
    return find_backend(algorithm(run, settings))


def check_algorithm(settings: Settings) -> None:
    """Raise `SettingsError` unless the run's algorithms name what can train with these settings."""
    find_backend(settings.train.algorithm).check(settings)
    if settings.loop.demonstration_iterations:
        find_backend(settings.loop.demonstration_algorithm).check(settings)
