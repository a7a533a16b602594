"""How the policy of a run learns in its current iteration."""

from __future__ import annotations

from webgym_cli.config.model import Settings
from webgym_cli.records.checkpoint import Algorithm
from webgym_cli.store.checkpoints import version
from webgym_cli.store.run import RunDir


def algorithm(run: RunDir, settings: Settings) -> Algorithm:
    """Return the algorithm of the current iteration: demonstrations, which nobody sampled, can only be imitated."""
    return "sft" if version(run) < settings.loop.demonstration_iterations else settings.train.algorithm
