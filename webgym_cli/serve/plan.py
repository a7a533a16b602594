"""Plans of vLLM servers, made before anything is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from webgym_cli.config.model import Settings
from webgym_cli.config.serve import ServeSettings
from webgym_cli.errors import SettingsError
from webgym_cli.jobs.devices import VARIABLE, split_gpus, usable_gpus
from webgym_cli.serve import cpu_server
from webgym_cli.serve.arguments import (
    RUNTIME_UPDATING,
    common_args,
    device_args,
    lora_args,
    refuse_arguments,
    round_rank,
    template_args,
)
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
    Raises `SettingsError` for an impossible sleep, more replicas than GPUs, and arguments that have a setting;
    `UsageError` for an invalid `CUDA_VISIBLE_DEVICES`.
    """
    serve = settings.serve
    refuse_arguments(serve.extra_args)
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
            *common_args(settings),
            *template_args(model, settings),
            *device_args(serve, device),
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
