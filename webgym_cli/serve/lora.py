"""vLLM arguments for serving named LoRA adapters on top of the base model."""

from __future__ import annotations

from webgym_cli.errors import JobError

# Allowed values of `--max-lora-rank`.
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# Adapters in one vLLM batch: the newest, the previous one, and that of an evaluation.
_MAX_LORAS = 3
# Enables loading and unloading of adapters at runtime.
RUNTIME_UPDATING = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}


class AdapterError(JobError):
    """A LoRA adapter is loaded and does nothing, or has no usable values; the merged weights can be served instead."""


def round_rank(rank: int) -> int:
    """Return the smallest allowed `--max-lora-rank` that is at least `rank`; 0 if there is none."""
    return next((allowed for allowed in _RANKS if 0 < rank <= allowed), 0)


def lora_args(rank: int) -> tuple[str, ...]:
    """Return the server's arguments for adapters up to `rank`, an allowed `--max-lora-rank`."""
    counts = ("--max-loras", str(_MAX_LORAS), "--max-cpu-loras", str(2 * _MAX_LORAS))
    return ("--enable-lora", "--max-lora-rank", str(rank), *counts)
