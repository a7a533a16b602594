"""The trainer's settings, one JSON file: those of the run (`config/rl.py`), and what the plan of one training adds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from webgym_cli.config.estimators import ESTIMATORS
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
from webgym_cli.config.suggest import explain
from webgym_cli.errors import WebGymError


class TrainingError(WebGymError):
    """The training can't be made; the text says why in one line, and what to do."""


class ModelConfig(RlModelSettings):
    """The policy's network."""

    path: str
    """Folder of a HuggingFace model, text or vision-language, or a name on the hub."""
    adapter: str | None = None
    """Folder of a LoRA adapter on this model, in PEFT's format, that the training goes on with; null: a new one."""
    trust_remote_code: bool = False
    """Whether the code that the model brings may run."""
    logprob_chunk: int = Field(default=1024, ge=1)
    """Number of tokens whose logits are in memory at once."""


class AlgorithmConfig(RlAlgorithmSettings):
    """Which advantages, and the KL in the reward."""

    adv_estimator: str = "grpo"
    """Name in the registry of advantage estimators (`estimators.py`)."""


class TrainerConfig(RlTrainerSettings):
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
    model: ModelConfig
    trainer: TrainerConfig
    algorithm: AlgorithmConfig = AlgorithmConfig()
    actor: ActorSettings = ActorSettings()
    ref: RefSettings = RefSettings()
    critic: CriticSettings = CriticSettings()
    plugins: tuple[str, ...] = ()
    """Files and modules that register a user's advantage estimator."""
    webrl: WebRLSettings | None = None
    """WebRL's actor-critic; None: a policy gradient, by `algorithm`."""

    @property
    def needs_reference(self) -> bool:
        """Whether the distance from a reference counts."""
        return self.webrl is not None or self.actor.use_kl_loss or self.algorithm.use_kl_in_reward

    @property
    def needs_critic(self) -> bool:
        """Whether a critic is trained."""
        return self.webrl is not None or ESTIMATORS.find(self.algorithm.adv_estimator).needs_critic


def read_options(path: Path) -> TrainerOptions:
    """Return the settings of a JSON file. Raises `TrainingError` naming the place of what is wrong in it."""
    return parse_options(_read(path), str(path))


def parse_options(text: str | bytes, source: str) -> TrainerOptions:
    """Return the settings of a JSON text from the named source. Raises `TrainingError`."""
    try:
        return TrainerOptions.model_validate_json(text, strict=True)
    except ValidationError as error:
        key, words = explain(error, TrainerOptions)
        raise TrainingError(": ".join(filter(None, (source, key, words)))) from None


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds. Raises `TrainingError`."""
    try:
        value = json.loads(_read(path))
    except ValueError as error:
        raise TrainingError(f"{path}: is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise TrainingError(f"{path}: a JSON object is wanted")
    return value


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TrainingError(f"{path}: can't be read: {error.strerror}") from error
