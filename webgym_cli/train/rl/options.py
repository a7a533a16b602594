"""The trainer's settings, one JSON file: those of the run (`config/rl.py`), and what the plan of one training adds."""

from __future__ import annotations

from webgym_cli.config.rl import (
    ActorSettings,
    CriticSettings,
    RefSettings,
    RlAlgorithmSettings,
    RlModelSettings,
    RlTrainerSettings,
    WebRLSettings,
)
from webgym_cli.config.section import ConfigSection
from webgym_cli.records.checkpoint import Estimator


class TrainedModel(RlModelSettings):
    """The policy's network."""

    path: str
    """Folder of a HuggingFace model, text or vision-language, or a name on the hub."""


class Algorithm(RlAlgorithmSettings):
    """Which advantages, and the KL in the reward."""

    adv_estimator: Estimator = "grpo"
    """`gae` needs a critic, `remax` a greedy rollout of each group."""

    @property
    def whitens(self) -> bool:
        """Whether the advantages are whitened."""
        if self.whiten_advantages is None:
            return self.adv_estimator in ("reinforce_plus_plus", "gae")
        return self.whiten_advantages


class Run(RlTrainerSettings):
    """The training as a whole. Its `deepspeed` is a path."""

    output_dir: str
    """Where log, states and the finished model go."""
    seed: int = 0
    """Decides how the mini-batches are drawn, and what a new adapter begins with."""
    carry_state: str | None = None
    """`checkpoint-N/rl_state` of the training before: its exact weights and moments are taken over."""


class TrainerOptions(ConfigSection):
    """The whole file."""

    data: str
    """Folder of the batch: `rows.jsonl`, `trajectories.jsonl`, `rl.json`."""
    model: TrainedModel
    trainer: Run
    algorithm: Algorithm = Algorithm()
    actor: ActorSettings = ActorSettings()
    ref: RefSettings = RefSettings()
    critic: CriticSettings = CriticSettings()
    webrl: WebRLSettings | None = None
    """WebRL's actor-critic; None: a policy gradient, by `algorithm`."""

    @property
    def needs_reference(self) -> bool:
        """Whether the distance from a reference counts."""
        return self.webrl is not None or self.actor.use_kl_loss or self.algorithm.use_kl_in_reward

    @property
    def needs_critic(self) -> bool:
        """Whether a critic is trained."""
        return self.webrl is not None or self.algorithm.adv_estimator == "gae"
