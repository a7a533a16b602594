"""Builds DeepSpeed's CPU optimizer before a training starts, so that a failed build is reported early."""

from __future__ import annotations

from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.errors import VenvError
from webgym_cli.jobs.process import Job
from webgym_cli.records.events import EventSink
from webgym_cli.train import failure
from webgym_cli.train.process_env import child_environment
from webgym_cli.train.rl.layout import is_offloaded
from webgym_cli.train.training_plan import TrainPlan

# Compiles the optimizer, or loads the cached build.
BUILD = "from deepspeed.ops.op_builder import CPUAdamBuilder; CPUAdamBuilder().load()"


async def require_optimizer(plan: TrainPlan, settings: Settings, log: Path, sink: EventSink) -> None:
    """Build DeepSpeed's CPU optimizer if this training needs it. Raises `VenvError` if the build fails."""
    if not is_offloaded(plan.deepspeed or {}, "optimizer"):
        return
    sink({"event": "train_note", "message": "DeepSpeed builds its CPU optimizer, some minutes the first time"})
    env = child_environment(plan.env, settings, plan.python)
    if await Job.run([str(plan.python), "-c", BUILD], env=env, log=log) != 0:
        raise VenvError(
            f"DeepSpeed can't build its CPU optimizer, which offloading needs: {failure.reason(log)}; log: {log}",
            hint="install g++ (with CUDA also nvcc, of the version of torch's CUDA), or take a configuration without "
            "offload: -s algorithm_config.deepspeed_config_filename=ds_config_h100_zero3.json",
        )
