"""Arguments of vLLM's server that decide what else follows: the kind of log-probabilities, and named LoRA adapters."""

from __future__ import annotations

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, SettingsError
from webgym_cli.records.sampling import Logprobs

# vLLM's argument and webgym's default for it.
FLAG, PROCESSED = "--logprobs-mode", "processed_logprobs"
_KINDS: dict[str, Logprobs] = {PROCESSED: "processed", "raw_logprobs": "raw"}


def logprobs_kind(settings: Settings) -> Logprobs:
    """Return the kind of log-probabilities of webgym's server; `serve.extra_args` overrides the default.

    Raises `SettingsError` for a mode that returns logits instead.
    """
    mode, arguments = PROCESSED, settings.serve.extra_args
    for number, argument in enumerate(arguments):
        name, given, value = argument.partition("=")
        if name.replace("_", "-") == FLAG:
            mode = value if given else "".join(arguments[number + 1 : number + 2])
    if mode not in _KINDS:
        raise SettingsError(
            f"serve.extra_args: {FLAG} {mode} gives no log-probabilities", hint="leave it out, then roll out again"
        )
    return _KINDS[mode]


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
