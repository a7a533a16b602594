"""Success probabilities from a checkpoint's critic, computed in the train venv's interpreter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError
from webgym_cli.store import checkpoints
from webgym_cli.store.run import RunDir
from webgym_cli.train.plan import trainer_env
from webgym_cli.train.policy_gradient.backend import CRITIC
from webgym_cli.train.process_limits import run_within
from webgym_cli.train.trainer_log import reason
from webgym_cli.util.files import write_lines
from webgym_cli.util.temporary_folder import TemporaryFolder
from webgym_cli.venvs.locate import resolve_device, role_python, trainer_environ

HEADS = "outcome_heads.safetensors"
_MODULE = "webgym_cli.trainer.webrl.critic_inference"


def outcome_critic(run: RunDir) -> Path | None:
    """Return the folder of the current policy's outcome critic, or None."""
    newest = checkpoints.current(run)
    folder = checkpoints.folder(run, newest) / CRITIC if newest else None
    return folder if folder is not None and (folder / HEADS).is_file() else None


@dataclass(frozen=True, slots=True)
class CriticState:
    """A prompt to score."""

    ids: Sequence[int]
    """Its token ids."""
    images: Sequence[Path] = ()
    """Image files, in the order of their placeholder tokens."""
    sizes: Sequence[tuple[int, int]] = ()
    """Width and height of each image in pixels."""


async def success_probabilities(
    critic: Path, policy: Path, prompts: Sequence[CriticState], settings: Settings, log: Path
) -> list[list[float]]:
    """Return each prompt's success probabilities, one per head; V is the minimum.

    Raises `VenvError` without the train venv, `JobError` if the scoring fails or hangs.
    """
    python = role_python(settings, "train")
    with TemporaryFolder("values") as folder:
        states, values = folder / "states.jsonl", folder / "values"
        facts = (
            {"ids": list(one.ids), "images": [str(path.absolute()) for path in one.images], "sizes": one.sizes}
            for one in prompts
        )
        write_lines(states, facts)
        own = {"path": str(policy), "trust_remote_code": settings.policy_config.trust_remote_code}
        model = json.dumps({**settings.rl.model.model_dump(), **own, "bf16": settings.rl.trainer.bf16})
        argv = [str(python), "-m", _MODULE, str(critic), model, str(states), str(values)]
        env = trainer_env(settings, resolve_device(settings.venvs.device), str(policy), folder)
        env.pop("OMP_NUM_THREADS", None)  # it is the only process
        env = trainer_environ(python) | env | {"HF_HUB_OFFLINE": "1"}
        code = await run_within(settings.train, argv, "the critic", env=env, log=log, folder=folder)
        if code != 0:
            raise JobError(
                f"the critic {critic} can't be asked (exit status {code}): {reason(log)}; log: {log}",
                hint="-s generate.critic=orm, or none",
                returncode=code,
            )
        return [json.loads(line) for line in values.read_text(encoding="utf-8").splitlines()]
