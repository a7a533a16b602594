"""How vLLM is told to serve LoRA adapters by their names, beside the model that they are on."""

from __future__ import annotations

# The values of `--max-lora-rank`.
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# Adapters that the requests of one batch may be of: the newest, the one before, and that of an evaluation.
_MAX_LORAS = 3
# Lets adapters be loaded and unloaded while the server runs.
RUNTIME_UPDATING = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}


def round_rank(rank: int) -> int:
    """Return the smallest rank that vLLM can be told of and that holds adapters of this one; 0: there is none."""
    return next((allowed for allowed in _RANKS if 0 < rank <= allowed), 0)


def lora_args(rank: int) -> tuple[str, ...]:
    """Return the server's arguments for adapters up to a rank that vLLM can be told of."""
    counts = ("--max-loras", str(_MAX_LORAS), "--max-cpu-loras", str(2 * _MAX_LORAS))
    return ("--enable-lora", "--max-lora-rank", str(rank), *counts)
