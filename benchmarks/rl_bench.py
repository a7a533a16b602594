"""How the RL benchmark runs its sides: jobs in the train role's interpreter, by turns, and rows of what they took."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Series, program, say

RATE, CLIP = 1e-6, 1.0
"""Learning rate and longest gradient: they cost nothing and are the same on all sides."""
_CPU = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
"""One thread: what the shipped trainer takes on a CPU."""
_ALWAYS = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

Result = dict[str, Any]
Sizes = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """Runs jobs in processes of their own. Its methods raise `JobError`, and `VenvError` without the role."""

    folder: Path
    steps: int
    """Optimizer steps that are counted in each process."""
    repeats: int
    until: float | None = None
    """When all of it must be over (`time.monotonic`)."""
    _numbers: Any = field(default_factory=count)

    @cached_property
    def python(self) -> str:
        """The interpreter that trains: this one if it has torch, else the train role's."""
        return sys.executable if find_spec("torch") else _role_python()

    @cached_property
    def trl_python(self) -> str:
        """The interpreter that has TRL: this one if it trains, else that of TRL's own environment."""
        return sys.executable if find_spec("torch") else _peer_python()

    def job(self, job: dict[str, Any], *, module: str = "rl_job", gpu: bool = False) -> Result:
        """Run a job, without a GPU unless it is asked for."""
        python = self.trl_python if module == "rl_trl" else self.python
        # only a package of this interpreter may come from elsewhere (pip's `--target`)
        path = os.environ.get("PYTHONPATH", "") if python == sys.executable else ""
        limit = None if self.until is None else max(1.0, self.until - time.monotonic())
        return program(module, job, python, limit=limit, PYTHONPATH=path, **_ALWAYS, **({} if gpu else _CPU))

    def models(self, sizes: dict[str, Sizes], dtype: str = "float32", *, gpu: bool = False) -> dict[str, Path]:
        """Make models with random weights, on the GPU if it is asked for; return their folders."""
        folders = {name: self.folder / f"model-{name}" for name in sizes}
        wanted = [{"folder": str(folders[name]), "sizes": shape} for name, shape in sizes.items()]
        self.job({"what": "models", "models": wanted, "dtype": dtype}, gpu=gpu)
        return folders

    def update(self, given: dict[str, Any], *, gpu: bool = False, gradient: Path | None = None) -> Result:
        """Train with the shipped trainer, and return what its steps took."""
        place = self.folder / f"training-{next(self._numbers)}"
        place.mkdir()
        config = place / "config.json"
        actor = {**given["actor"], "ppo_epochs": self.steps + 1}
        run = {"output_dir": str(place / "out"), "save_freq": 0}
        config.write_text(json.dumps({**given, "actor": actor, "trainer": run}), encoding="utf-8")
        job = {"what": "update", "config": str(config), "steps": self.steps}
        result = self.job({**job, "gradient": str(gradient) if gradient else ""}, gpu=gpu)
        shutil.rmtree(place)
        return result

    def by_turns(self, sides: dict[str, Callable[[], Result]]) -> dict[str, list[Result]]:
        """Run every side once a repeat, one after another, and return what each gave."""
        results: dict[str, list[Result]] = {name: [] for name in sides}
        for number in range(self.repeats):
            for name, side in sides.items():
                say(f"{name}, repeat {number + 1} of {self.repeats}")
                results[name].append(side())
        return results


def _role_python() -> str:
    from webgym_cli.config.load import load
    from webgym_cli.venvs.locate import role_python

    return str(role_python(load(), "train"))


def _peer_python() -> str:
    from benchmarks.peers import TRL

    TRL.install()
    return str(TRL.python)


def options(
    model: Path, data: Path, *, budget: int, packed: bool = True, chunk: int = 1024, lora: int = 0
) -> dict[str, Any]:
    """Return the trainer's settings: as by default but for what is compared, with all rows in each step."""
    return {
        "data": str(data),
        "model": {"path": str(model), "use_remove_padding": packed, "lora_rank": lora, "logprob_chunk": chunk},
        # nobody sampled these batches: their log-probs are made up
        "algorithm": {"adv_estimator": "grpo", "rollout_correction": {"rollout_is": "none"}},
        "actor": {"optim": {"lr": RATE}, "grad_clip": CLIP, "ppo_max_token_len_per_gpu": budget},
    }


def series(results: Sequence[Result], *names: str) -> Series:
    """Return a figure of each repeat; several are added up."""
    return Series(tuple(sum(result[name] for name in names) for result in results))


def compared(
    case: str, results: dict[str, list[Result]], name: str, baseline: str, inputs: dict[str, Any]
) -> list[Row]:
    """Return the seconds and the peak memory of an update of one side beside those of another."""
    ours, theirs = results[name], results[baseline]
    about = {
        **inputs,
        "held_mb": [round(series(side, "held_mb").median) for side in (ours, theirs)],
        "versions": {side: results[side][0]["versions"] for side in (name, baseline)},
    }
    return [
        Row(case, metric, series(ours, figure), baseline, series(theirs, figure), inputs=about)
        for metric, figure in (("update_s", "seconds"), ("update_peak_mb", "peak_mb"))
    ]
