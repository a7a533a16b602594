"""Checks of `webgym doctor --gpu`: driver, both environments, NCCL, a round with a tiny model, memory."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from webgym_cli.cli.gpu_round import run_round
from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, VenvError, WebGymError
from webgym_cli.jobs.process import last_line
from webgym_cli.train import deepspeed_ops, footprint
from webgym_cli.train.registry import find_backend
from webgym_cli.util.optional import when
from webgym_cli.util.temporary_folder import TemporaryFolder
from webgym_cli.venvs.doctor import DoctorCheck, check_kernels
from webgym_cli.venvs.locate import ROLES, Device, driver_answers, role_python, venv_environ

# A path, not an import: the script needs torch.
SCRIPT = str(Path(__file__).resolve().parents[1] / "venvs" / "gpu_report.py")
REPORT_SECONDS = 120.0
# Maximum KL divergence between server and trainer; above it the importance weights are too far from 1.
MISMATCH_LIMIT = 0.015
GB = 1e9


def check_gpus(settings: Settings) -> Iterator[DoctorCheck]:
    """Yield the result of each check. Raises `VenvError` without a GPU."""
    if not driver_answers():
        raise VenvError(
            "no GPU: no NVIDIA driver answers",
            hint="install the driver until nvidia-smi shows the GPU; without one: webgym doctor",
        )
    settings = settings.with_changes(venvs={"device": "cuda"})
    reports: dict[str, dict[str, Any]] = {}
    for role in ROLES:
        try:
            reports[role] = report_gpus(role_python(settings, role), 1, "cuda")
        except WebGymError as error:
            yield _report_failure(f"{role} torch", error, f"webgym setup --role {role} --device cuda")
            continue
        yield _torch_check(role, reports[role])
    gpus = reports.get("train", {}).get("gpus", [])
    if "train" in reports:
        yield _check_nccl(settings, len(gpus))
    if kernels := check_kernels(settings):
        yield kernels
    if len(reports) == len(ROLES):
        yield _check_round(settings)
    yield check_memory(settings, min((gpu["bytes"] for gpu in gpus), default=0), max(1, len(gpus)))


def report_gpus(python: Path, processes: int, device: Device) -> dict[str, Any]:
    """Run `gpu_report.py` in a role's interpreter and return its report. Raises `JobError` with the end of its log."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}")
    command = [str(python), *when(processes > 1, torchrun), SCRIPT]
    # The script's folder must not hide the standard library's modules.
    env = venv_environ(python) | {"PYTHONSAFEPATH": "1"} | when(device == "cpu", {"CUDA_VISIBLE_DEVICES": ""})
    with TemporaryFolder("doctor") as folder:
        log = folder / "log"
        try:
            with log.open("wb") as errors:
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, timeout=REPORT_SECONDS, env=env)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise JobError(str(error)) from error
        if done.returncode:
            raise JobError(last_line(log, "it said nothing"), returncode=done.returncode)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def _torch_check(role: str, report: dict[str, Any]) -> DoctorCheck:
    name, gpus = f"{role} torch", report["gpus"]
    words = f"torch {report['torch']}, CUDA {report['cuda'] or 'none'}"
    if not gpus:
        fix = "the driver is older than torch's CUDA (see nvidia-smi), or CUDA_VISIBLE_DEVICES hides the GPUs"
        return DoctorCheck(name, "missing", f"{words}: sees no GPU", fix=fix)
    kinds = ", ".join(f"{gpu['name']} {gpu['bytes'] / GB:.0f} GB ({gpu['free'] / GB:.0f} free)" for gpu in gpus)
    return DoctorCheck(name, "ok", f"{words}; {kinds}")


def _check_nccl(settings: Settings, processes: int) -> DoctorCheck:
    if processes < 2:
        return DoctorCheck("nccl", "ok", "one GPU: nothing to connect")
    try:
        report = report_gpus(role_python(settings, "train"), processes, "cuda")
    except WebGymError as error:
        return _report_failure(
            "nccl", error, "NCCL_DEBUG=INFO tells more; NCCL_P2P_DISABLE=1 or NCCL_SHM_DISABLE=1 may help"
        )
    return DoctorCheck("nccl", "ok", f"{processes} processes, all-reduce {report['all_reduce'] / GB:.3g} GB/s")


def _check_round(settings: Settings) -> DoctorCheck:
    with TemporaryFolder("doctor") as folder:
        try:
            result = asyncio.run(run_round(settings, folder))
        except WebGymError as error:
            return _report_failure("serve, train, swap", error, "webgym serve RUN, and the newest log under RUN/logs/")
    fix = ""
    if result.how != "in_place":
        fix = f"new weights need a restart of the server: {result.reason}"
    if abs(result.mismatch_kl) > MISMATCH_LIMIT:
        fix = f"the mismatch KL is above {MISMATCH_LIMIT}: -s serve.dtype=bfloat16 is what training takes"
    return DoctorCheck("serve, train, swap", "warn" if fix else "ok", str(result), fix=fix)


def check_memory(settings: Settings, capacity: int, processes: int) -> DoctorCheck:
    """Check that the configured model fits a GPU of `capacity` bytes in serving and, without activations, training."""
    name, model = "memory", settings.policy_config.base_model
    tensors = footprint.model_tensors(model)
    if not tensors:
        return DoctorCheck(name, "warn", f"{model}: its size is not known", fix="download it, and name its folder")
    backend, deepspeed = find_backend(settings.train.algorithm), deepspeed_ops.read_deepspeed(settings)
    training = backend.estimate_memory(settings, tensors, deepspeed, settings.train.nproc_per_node or processes)
    served = 2 * sum(math.prod(shape) for _, _, shape in tensors) // settings.serve.tensor_parallel_size
    needed = "" if training is None else f"training {training.gpu / GB:.1f} GB a GPU before activations, "
    words = f"{needed}weights of the server {served / GB:.1f} GB"
    if not capacity:
        return DoctorCheck(name, "ok", words, model)
    words = f"{words}, of {capacity / GB:.1f} GB"
    if training is not None and training.gpu >= capacity:
        file = "ds_config_h200_zero3_offload.json"
        fix = f"-s {backend.deepspeed_setting}={file}, LoRA, or more GPUs (docs/gpu-host.md)"
        return DoctorCheck(name, "missing", words, model, fix)
    if served >= settings.serve.gpu_memory_utilization * capacity:
        return DoctorCheck(name, "missing", words, model, "-s serve.tensor_parallel_size=2 or more")
    return DoctorCheck(name, "ok", words, model)


def _report_failure(name: str, error: WebGymError, fix: str) -> DoctorCheck:
    return DoctorCheck(name, "missing", str(error), fix=error.hint or fix)
