"""Settings `loop`: the loop. The text under a field is its help."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class LoopSettings(ConfigSection):
    """The order of things in `webgym loop`."""

    iterations: int = Field(default=3, ge=1)
    """Iterations that the run shall have in all."""
    demonstration_iterations: int = Field(default=0, ge=0)
    """So many first iterations collect the expert's demonstrations (the SFT baseline) in place of the policy's own, or
    take those that were imported there (`webgym import`)."""
    demonstration_algorithm: str = "sft"
    """How such an iteration is trained on, as `train.algorithm`: by a backend that imitates steps."""
    demonstration_episodes: int | None = Field(default=None, ge=1)
    """Episodes of such an iteration; null: as many as of any other (rollout.episodes)."""
    eval_every: int = Field(default=1, ge=0)
    """Evaluate every so many policy versions on the test split, from the base model (version 0) on, and the last one;
    1: each version, 0: none."""
