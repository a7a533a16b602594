"""Prints the GPUs that a venv's torch detects, as one line of JSON. Runs in that venv's interpreter.

python gpu_report.py          (or torchrun with one process per GPU: also measures the all-reduce bandwidth)
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
from torch import distributed

ELEMENTS = 64 * 2**20
ROUNDS = 5


def describe() -> dict[str, Any]:
    """Return torch's version, the CUDA it was built for, and name and bytes of each GPU."""
    gpus = []
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        gpus.append({"name": torch.cuda.get_device_name(number), "bytes": total, "free": free})
    return {"torch": torch.__version__, "cuda": torch.version.cuda or "", "gpus": gpus}


def measure_all_reduce() -> float:
    """Return the bus bandwidth of an all-reduce among torchrun's processes in bytes/s. Raises on a wrong sum."""
    on_gpus = torch.cuda.is_available()
    device, backend, elements = torch.device("cpu"), "gloo", 1024
    if on_gpus:
        device, backend, elements = torch.device("cuda", int(os.environ["LOCAL_RANK"])), "nccl", ELEMENTS
        torch.cuda.set_device(device)
    distributed.init_process_group(backend)
    count = int(distributed.get_world_size())
    values = torch.ones(elements, device=device)
    distributed.all_reduce(values)
    if not bool((values == count).all()):
        raise ArithmeticError(f"the sum over {count} processes is wrong")
    _synchronize(on_gpus)
    began = time.perf_counter()
    for _ in range(ROUNDS):
        distributed.all_reduce(values)
    _synchronize(on_gpus)
    seconds = (time.perf_counter() - began) / ROUNDS
    distributed.destroy_process_group()
    # bus bandwidth as defined by nccl-tests: comparable between numbers of GPUs
    return 2 * (count - 1) / count * int(values.nbytes) / seconds


def _synchronize(on_gpus: bool) -> None:
    if on_gpus:
        torch.cuda.synchronize()


def main() -> None:
    """Write the line to stdout, by the first process."""
    if "WORLD_SIZE" not in os.environ:
        sys.stdout.write(json.dumps(describe()) + "\n")
        return
    rank, speed = os.environ["RANK"], measure_all_reduce()
    if rank == "0":
        sys.stdout.write(json.dumps(describe() | {"all_reduce": speed}) + "\n")


if __name__ == "__main__":
    main()
