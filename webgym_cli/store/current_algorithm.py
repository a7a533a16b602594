"""How the policy of a run learns in its current iteration."""

from __future__ import annotations

from webgym_cli.config.model import Settings
from webgym_cli.store.checkpoints import version
from webgym_cli.store.run import RunDir


def algorithm(run: RunDir, settings: Settings) -> str:
    """Return the algorithm of the current iteration: demonstrations have an algorithm of their own."""
    # an expert's steps have no log-probs of the policy: no policy gradient can train on them
    demonstrations = version(run) < settings.loop.demonstration_iterations
    return settings.loop.demonstration_algorithm if demonstrations else settings.train.algorithm
