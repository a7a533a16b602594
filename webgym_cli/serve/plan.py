"""Plans of vLLM servers, made before anything is started."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from webgym_cli.agent.prompts.webrl_prompt import RAW_TEMPLATE
from webgym_cli.config.model import Settings
from webgym_cli.config.model_defaults import AUTO, NONE
from webgym_cli.config.model_families import chat_template_kwargs
from webgym_cli.config.serve import ServeSettings
from webgym_cli.errors import SettingsError
from webgym_cli.jobs.devices import VARIABLE, split_gpus, usable_gpus
from webgym_cli.records.sampling import Logprobs
from webgym_cli.records.trajectory import PromptVersion
from webgym_cli.serve import cpu_server
from webgym_cli.util.local_server import format_address, local_address
from webgym_cli.util.optional import known_or, when
from webgym_cli.util.urls import is_loopback

# Port value for any free port.
ANY_PORT = 0
LAST_PORT = 65535

# Action of a server between two phases.
SleepAction = Literal["keep", "sleep", "stop"]


@dataclass(frozen=True, slots=True)
class SleepPolicy:
    """How a server releases GPU memory during a training."""

    action: SleepAction
    timeout: float = 120.0
    """Timeout of sleep and of each wake-up step, in seconds."""
    memory_gb: float = 10.0
    """Maximum GPU memory of a sleeping server, in GiB: what vLLM keeps beside the weights and the cache."""


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """Plan of one vLLM server."""

    python: str
    """The interpreter of the serve environment."""
    model: str
    """A local folder or a hub id."""
    device: str
    serve: ServeSettings
    """Settings of all servers: address, name of the model, timeouts, and the user's own arguments."""
    port: int
    """0: any free port, chosen at the start."""
    args: tuple[str, ...]
    """The server's arguments except model, port and the user's own."""
    env: dict[str, str]
    """Additions to the inherited environment."""
    dev_mode: bool
    """Whether weights can be swapped in place."""
    sleep: SleepPolicy
    """Behaviour while training needs the GPUs."""
    lora_rank: int = 0
    """Maximum rank of LoRA adapters served by name; 0: no adapters."""
    replica: int = 0
    """Index among the servers of this machine, from 0."""

    @property
    def base_url(self) -> str:
        """OpenAI-compatible base URL for clients on this machine; empty if the port is not fixed yet."""
        return when(self.port != ANY_PORT, base_url(self.serve.host, self.port))

    def argv(
        self, model: str | None = None, port: int | None = None, adapters: Mapping[str, str] = MappingProxyType({})
    ) -> list[str]:
        """Return the command line. `model`, `port`: defaults are the plan's; `adapters`: folders by name."""
        named = when(adapters, ["--lora-modules", *(f"{name}={folder}" for name, folder in adapters.items())])
        where = ["--model", model or self.model, "--port", str(known_or(port, self.port))]
        server = [cpu_server.__file__] if self.device == "cpu" else ["-m", cpu_server.MODULE]
        # the user's own come last, so that they override the others
        return [self.python, *server, *where, *self.args, *named, *self.serve.extra_args]

    def env_for(self, model: str) -> dict[str, str]:
        """Return the additions to the environment for a model."""
        return self.env | when(Path(model).is_dir(), {"HF_HUB_OFFLINE": "1"})

    def to_json(self) -> dict[str, Any]:
        """Return the plan as one event."""
        return {
            "event": "plan",
            "stage": "serve",
            "model": self.model,
            "device": self.device,
            "host": self.serve.host,
            "port": self.port,
            "served_name": self.serve.served_model_name,
            "env": self.env_for(self.model),
            "dev_mode": self.dev_mode,
            "startup_timeout": self.serve.startup_timeout,
            "stall_timeout": self.serve.stall_timeout,
            "sleep": asdict(self.sleep),
            "lora_rank": self.lora_rank,
            "replica": self.replica,
            "base_url": self.base_url,
            "argv": self.argv(),
        }


def _divide_gpus(serve: ServeSettings, device: str) -> list[tuple[str, ...]]:
    """Return the GPUs of each replica, none on a CPU. Raises `SettingsError` without GPUs or ports for all of them."""
    split: list[tuple[str, ...]] = [()] * (serve.replicas or 1)
    if device != "cpu":
        split = split_gpus(usable_gpus(os.environ, serve.gpus), serve.replicas, serve.workers, chosen=bool(serve.gpus))
    if serve.port + len(split) - 1 > LAST_PORT:
        why = f"serve.port: {len(split)} replicas have no ports from {serve.port} on"
        raise SettingsError(why, hint="name a lower one")
    return split


def plan_servers(
    settings: Settings, model: str, python: Path, device: str, *, phases: bool = False, lora_rank: int = 0
) -> list[ServerPlan]:
    """Return the plans of this machine's servers for a model on `cpu` or `cuda`, one per replica.

    `phases`: whether the servers alternate with training; `lora_rank`: rank of the trained adapters, 0 for none.
    Raises `SettingsError` for an impossible sleep and for more replicas than GPUs, `UsageError` for an invalid
    `CUDA_VISIBLE_DEVICES`.
    """
    serve = settings.serve
    split = _divide_gpus(serve, device)
    action = _choose_sleep(settings, device) if phases else "keep"
    # Named adapters need servers that keep running, on loopback: the endpoint lets any client load adapters.
    by_name = serve.enable_lora and action == "keep" and is_loopback(serve.host)
    served = when(by_name, round_rank(lora_rank))
    dev_mode = is_loopback(serve.host)
    plan = ServerPlan(
        python=str(python),
        model=model,
        device=device,
        serve=serve,
        port=serve.port,
        args=(
            *_common_args(settings),
            *_template_args(model, settings),
            *_device_args(serve, device),
            *when(action == "sleep", ("--enable-sleep-mode",)),
            *when(served, lora_args(served)),
        ),
        # Else a `datasets` or `queue.py` of the current folder would be imported in place of the package.
        # In-place weight updates need the developer endpoints, which let any client run engine methods.
        env={"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONSAFEPATH": "1"}
        | {"VLLM_SERVER_DEV_MODE": str(int(dev_mode))}
        | when(device == "cpu", _cpu_env(settings, len(split))),
        dev_mode=dev_mode,
        sleep=SleepPolicy(action),
        lora_rank=served,
    )
    own = [when(share, {VARIABLE: ",".join(share)}) | when(served, RUNTIME_UPDATING) for share in split]
    ports = [when(serve.port != ANY_PORT, serve.port + number) for number in range(len(split))]
    return [
        replace(plan, port=port, env=plan.env | env, replica=number)
        for number, (port, env) in enumerate(zip(ports, own, strict=True))
    ]


def _choose_sleep(settings: Settings, device: str) -> SleepAction:
    """Return how the servers release GPUs during training. Raises `SettingsError` for an impossible sleep."""
    setting, host, gpus = settings.serve.during_training, settings.serve.host, settings.serve.gpus
    apart = bool(gpus and settings.train.gpus) and set(gpus).isdisjoint(settings.train.gpus)
    if setting != "auto":
        how: SleepAction = setting
    elif device == "cpu" or apart:
        how = "keep"
    else:
        how = "sleep" if is_loopback(host) else "stop"
    if how == "sleep" and (device == "cpu" or not is_loopback(host)):
        why = "vLLM sleeps on GPUs only" if device == "cpu" else f"{host} is no loopback address"
        raise SettingsError(f"serve.during_training: sleep is not possible here: {why}", hint="leave it auto")
    return how


def _common_args(settings: Settings) -> list[str]:
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


def _template_args(model: str, settings: Settings) -> tuple[str, ...]:
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


def _device_args(serve: ServeSettings, device: str) -> list[str]:
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


def _cpu_env(settings: Settings, servers: int) -> dict[str, str]:
    """Return the variables of the CPU backend. Half of a server's share of the cores is left to the browsers."""
    workers, cpus = settings.serve.workers, len(os.sched_getaffinity(0)) // servers
    # A worker beside the engine costs as much again for each token: both poll their shared memory all the time.
    return when(workers == 1, {cpu_server.ONE_PROCESS: "0"}) | {
        # binding threads to cores fails in containers that don't have all of them
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(max(1, cpus // 2 // workers)),
        # else the first request with logprobs compiles a helper in C++: up to a minute, and fatal without a compiler
        "TORCHDYNAMO_DISABLE": "1",
    }


def base_url(host: str, port: int) -> str:
    """Return the OpenAI base URL of a server on this machine."""
    return f"http://{format_address((local_address(host), port))}/v1"


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


def round_rank(rank: int) -> int:
    """Return the smallest allowed `--max-lora-rank` that is at least `rank`; 0 if there is none."""
    return next((allowed for allowed in _RANKS if 0 < rank <= allowed), 0)


def lora_args(rank: int) -> tuple[str, ...]:
    """Return the server's arguments for adapters up to `rank`, an allowed `--max-lora-rank`."""
    counts = ("--max-loras", str(_MAX_LORAS), "--max-cpu-loras", str(2 * _MAX_LORAS))
    return ("--enable-lora", "--max-lora-rank", str(rank), *counts)
