"""Whether DeepSpeed can build the optimizer that it needs on the CPU: known before a training starts, not after."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import VenvError
from webgym_cli.jobs.process import Job
from webgym_cli.records.events import EventSink
from webgym_cli.train import failure
from webgym_cli.train.process_env import child_environment
from webgym_cli.train.training_plan import TrainPlan

# Compiles the optimizer, or finds it compiled.
BUILD = "from deepspeed.ops.op_builder import CPUAdamBuilder; CPUAdamBuilder().load()"


def is_offloaded(deepspeed: dict[str, Any] | None) -> bool:
    """Tell whether DeepSpeed's settings keep the optimizer on the CPU."""
    zero = (deepspeed or {}).get("zero_optimization", {})
    return bool(zero.get("offload_optimizer", {}).get("device", "none") != "none")


async def require_optimizer(plan: TrainPlan, settings: Settings, log: Path, sink: EventSink) -> None:
    """Have DeepSpeed's CPU optimizer built where this training needs it. Raises `VenvError` when it can't be."""
    if not is_offloaded(plan.deepspeed):
        return
    sink({"event": "train_note", "message": "DeepSpeed builds its CPU optimizer, some minutes the first time"})
    env = child_environment(plan.env, settings, plan.python)
    job = Job.spawn([str(plan.python), "-c", BUILD], env=env, log=log)
    try:
        code = await job.wait()
    finally:
        await asyncio.shield(job.stop())
    if code != 0:
        raise VenvError(
            f"DeepSpeed can't build its CPU optimizer, which offloading needs: {failure.reason(log)}; log: {log}",
            hint="install g++ (with CUDA also nvcc, of the version of torch's CUDA), or take a configuration without "
            "offload: -s algorithm_config.deepspeed_config_filename=ds_config_h100_zero3.json",
        )
