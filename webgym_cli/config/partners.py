"""Settings that have no effect without another one, which a command names before it starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from webgym_cli.config.load import flat_values
from webgym_cli.config.model import Settings
from webgym_cli.config.renamed import find_section


class _Partner(NamedTuple):
    """A condition on which settings have an effect."""

    names: tuple[str, ...]
    """Dotted keys, or sections."""
    holds: Callable[[Settings], bool]
    reason: str
    """Why they have no effect."""


_PARTNERS = (
    _Partner(("judge",), lambda of: bool(of.judge.base_url), "nothing is judged, because judge.base_url is empty"),
    _Partner(("tasks.difficulty_ratio",), lambda of: of.tasks.sampler == "ratio", "tasks.sampler is not ratio"),
    _Partner(
        ("tasks.pool_shares",),
        lambda of: of.tasks.sampler == "pass_rate",
        "tasks.sampler is not pass_rate",
    ),
    _Partner(
        ("rollout.completion_grace",),
        lambda of: of.rollout.completion_threshold < 1,
        "rollout.completion_threshold is 1",
    ),
    _Partner(
        ("rollout.ray_address",),
        lambda of: "ray" in (of.rollout.executor, of.train.executor),
        "rollout.executor and train.executor are local",
    ),
    _Partner(("rollout.ray_cpus",), lambda of: of.rollout.executor == "ray", "rollout.executor is local"),
    _Partner(("train.nodes",), lambda of: of.train.executor == "ray" or of.train.nodes == 1, "train.executor is local"),
    _Partner(("loop.max_staleness", "loop.stale"), lambda of: of.loop.mode == "async", "loop.mode is sync"),
    _Partner(
        ("rl.actor.kl_loss_coef", "rl.actor.kl_loss_type"),
        lambda of: of.rl.actor.use_kl_loss,
        "rl.actor.use_kl_loss is false",
    ),
    _Partner(
        ("rl.algorithm.kl_ctrl", "rl.algorithm.kl_penalty"),
        lambda of: of.rl.algorithm.use_kl_in_reward,
        "rl.algorithm.use_kl_in_reward is false",
    ),
    _Partner(
        ("loop.demonstration_episodes", "loop.demonstration_algorithm"),
        lambda of: of.loop.demonstration_iterations > 0,
        "loop.demonstration_iterations is 0",
    ),
)


def list_ineffective(settings: Settings) -> list[str]:
    """Return a note for each group of changed settings that has no effect because of another one's value."""
    usual, values = flat_values(Settings()), flat_values(settings)
    changed = [key for key, value in values.items() if value != usual.get(key)]
    notes = []
    for partner in _PARTNERS:
        given = [key for key in changed if find_section(key, partner.names)]
        if given and not partner.holds(settings):
            notes.append(f"{', '.join(given)}: no effect: {partner.reason}")
    return notes
