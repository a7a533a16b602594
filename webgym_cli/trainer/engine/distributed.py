"""The processes of a training: rank, world size, device, all-reduce and barrier."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed


@dataclass(frozen=True, slots=True)
class DistributedContext:
    """Rank, world size and device of this process."""

    rank: int
    """Global rank."""
    size: int
    """World size."""
    device: torch.device
    """The device of this process."""

    @property
    def is_main_process(self) -> bool:
        """Whether this is rank 0, which writes the files."""
        return self.rank == 0

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum over all processes, on the CPU."""
        if self.size == 1:
            return values.detach().cpu()
        summed = values.detach().to(self.device, copy=True)
        distributed.all_reduce(summed)
        return summed.cpu()

    def wait(self) -> None:
        """Wait for all processes (a barrier)."""
        if self.size > 1:
            distributed.barrier()


def init(*, grouped: bool) -> DistributedContext:
    """Initialise the process group of torchrun's processes, or a context of one process.

    `grouped`: create a process group even for one process, as DeepSpeed requires. Call `shutdown` at the end.
    """
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    os.environ.setdefault("LOCAL_RANK", "0")  # DeepSpeed looks for it
    if (size > 1 or grouped) and not distributed.is_initialized():
        alone: dict[str, Any] = {} if size > 1 else {"store": distributed.HashStore(), "rank": 0, "world_size": 1}
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", **alone)
    return DistributedContext(rank, size, device)


def shutdown() -> None:
    """Destroy the process group, if there is one."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
