"""Arguments of vLLM's server: webgym's defaults, and what the user's own mean for the rest of webgym."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from webgym_cli.agent.prompts.webrl_prompt import RAW_TEMPLATE
from webgym_cli.config.model import Settings
from webgym_cli.config.model_defaults import AUTO, NONE
from webgym_cli.config.model_families import chat_template_kwargs
from webgym_cli.config.serve import ServeSettings
from webgym_cli.errors import SettingsError
from webgym_cli.records.sampling import Logprobs
from webgym_cli.records.trajectory import PromptVersion
from webgym_cli.util.arguments import read_arguments
from webgym_cli.util.optional import when

# vLLM's argument and webgym's default for it.
FLAG, PROCESSED = "--logprobs-mode", "processed_logprobs"
_KINDS: dict[str, Logprobs] = {PROCESSED: "processed", "raw_logprobs": "raw"}
# Arguments whose settings clients and checks read: with another name or port no request reached the server, and with
# another length prompts were too long that the settings admit.
_SETTINGS = {
    "--model": "policy_config.base_model",
    "--served-model-name": "serve.served_model_name",
    "--host": "serve.host",
    "--port": "serve.port",
    "--max-model-len": "serve.max_model_len",
    "--tensor-parallel-size": "serve.tensor_parallel_size",
    "-tp": "serve.tensor_parallel_size",
    "--data-parallel-size": "serve.data_parallel_size",
    "-dp": "serve.data_parallel_size",
}
# Allowed values of `--max-lora-rank`.
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# Adapters in one vLLM batch: the newest, the previous one, and that of an evaluation.
_MAX_LORAS = 3
# Enables loading and unloading of adapters at runtime.
RUNTIME_UPDATING = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}


def common_args(settings: Settings) -> list[str]:
    """Return the arguments of every server."""
    serve = settings.serve
    return [
        *("--host", serve.host),
        *("--served-model-name", serve.served_model_name),
        *("--max-model-len", str(serve.max_model_len)),
        *("--max-num-seqs", str(serve.max_num_seqs)),
        *("--tensor-parallel-size", str(serve.tensor_parallel_size)),
        *("--data-parallel-size", str(serve.data_parallel_size)),
        *("--limit-mm-per-prompt", _images(settings)),
        *when(settings.policy_config.trust_remote_code, ("--trust-remote-code",)),
        *when(serve.reasoning_parser not in (AUTO, NONE), ("--reasoning-parser", serve.reasoning_parser)),
        *("--seed", str(settings.seed)),
        # log-probabilities of the sampling distribution: after temperature, top-k, top-p and min-p
        *(FLAG, PROCESSED),
        # a checkpoint's generation_config.json would silently add penalties that are not in the settings
        *("--generation-config", "vllm"),
        "--disable-uvicorn-access-log",
    ]


def template_args(model: str, settings: Settings) -> tuple[str, ...]:
    """Return the arguments for the chat template of a model."""
    if settings.context_config.prompt_version is PromptVersion.WEBRL_RELEASED:
        return ("--chat-template", RAW_TEMPLATE)
    arguments = chat_template_kwargs(model)
    return when(arguments, ("--default-chat-template-kwargs", json.dumps(arguments)))


def _images(settings: Settings) -> str:
    """Return `--limit-mm-per-prompt`: the images of the history window and the current observation.

    vLLM reserves memory for this size; it does not resize. Screenshots above `image_max_pixels` are not trained on,
    and smaller ones are resized only by the model's own processor, in training and serving alike.
    """
    side = math.ceil(math.sqrt(settings.image.image_max_pixels))
    context = settings.context_config
    count = min(context.history_window + 1, context.max_images or context.history_window + 1)
    return json.dumps({"image": {"count": count, "width": side, "height": side}, "video": 0}, separators=(",", ":"))


def device_args(serve: ServeSettings, device: str) -> list[str]:
    """Return the arguments for `cpu` or `cuda`."""
    if device != "cpu":
        return ["--gpu-memory-utilization", str(serve.gpu_memory_utilization), "--dtype", serve.dtype]
    return [
        "--enforce-eager",
        # a request with a seed whose prefill is split kills vLLM's CPU engine: each prefill must fit into one step
        "--no-enable-chunked-prefill",
        *("--max-num-batched-tokens", str(max(serve.max_model_len, serve.max_num_seqs))),
        *("--dtype", "float32" if serve.dtype == "auto" else serve.dtype),
        # the backend's own variable takes whole GiB only
        *("--kv-cache-memory-bytes", str(round(serve.cpu_kvcache_gb * 2**30))),
        *when(serve.workers == 1, ("--distributed-executor-backend", "uni")),
    ]


def refuse_arguments(arguments: Sequence[str]) -> None:
    """Raise `SettingsError` for arguments of `serve.extra_args` that have a setting which not vLLM alone reads."""
    for name, _ in read_arguments(arguments):
        if setting := _SETTINGS.get(name):
            raise SettingsError(
                f"serve.extra_args: {name} would reach vLLM alone; the rest of webgym reads {setting}",
                hint=f"leave it out, and set {setting}",
            )


def logprobs_kind(settings: Settings) -> Logprobs:
    """Return the kind of log-probabilities of webgym's server; `serve.extra_args` overrides the default.

    Raises `SettingsError` for a mode that returns logits instead.
    """
    mode = PROCESSED
    for name, value in read_arguments(settings.serve.extra_args):
        if name == FLAG:
            mode = value
    if mode not in _KINDS:
        raise SettingsError(
            f"serve.extra_args: {FLAG} {mode} gives no log-probabilities", hint="leave it out, then roll out again"
        )
    return _KINDS[mode]


def round_rank(rank: int) -> int:
    """Return the smallest allowed `--max-lora-rank` that is at least `rank`; 0 if there is none."""
    return next((allowed for allowed in _RANKS if 0 < rank <= allowed), 0)


def lora_args(rank: int) -> tuple[str, ...]:
    """Return the server's arguments for adapters up to `rank`, an allowed `--max-lora-rank`."""
    counts = ("--max-loras", str(_MAX_LORAS), "--max-cpu-loras", str(2 * _MAX_LORAS))
    return ("--enable-lora", "--max-lora-rank", str(rank), *counts)
