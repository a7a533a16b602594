"""Decides how vLLM's server is run. Pure: everything here can be printed and compared."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from webgym_cli.config.model import Settings

MODULE = "vllm.entrypoints.openai.api_server"
"""Run as a module: the command `vllm` looks for a distribution of that name, which the CPU build hasn't."""

DROPPED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables of our own environment that would mislead the role's interpreter."""


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """A vLLM server: what is run, and where it will answer."""

    python: Path
    model: str
    """A local folder or a Hugging Face id."""
    host: str
    port: int
    """0: a free one is taken at the start."""
    served_name: str
    max_model_len: int
    options: tuple[str, ...]
    """vLLM's arguments beside model, host and port."""
    variables: tuple[tuple[str, str], ...]
    """What is added to the inherited environment; nothing secret."""
    startup_timeout: float
    stop_grace: float
    log_name: str = "vllm.log"

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line."""
        where = ("--model", self.model, "--host", self.host, "--port", str(self.port))
        return (str(self.python), "-m", MODULE, *where, *self.options)

    @property
    def root_url(self) -> str:
        """Where the server answers, as seen from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def base_url(self) -> str:
        """The OpenAI base URL."""
        return f"{self.root_url}/v1"

    @property
    def swaps_in_place(self) -> bool:
        """Whether the server has the endpoints that give it new weights."""
        return is_loopback(self.host)

    def at_port(self, port: int) -> ServerPlan:
        """Return the same plan on another port."""
        return replace(self, port=port)

    def with_model(self, model: str) -> ServerPlan:
        """Return the same plan for another model."""
        offline = [pair for pair in self.variables if pair[0] != "HF_HUB_OFFLINE"]
        return replace(self, model=model, variables=(*offline, *_offline(model)))

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the child's whole environment."""
        merged = {name: value for name, value in inherited.items() if name not in DROPPED} | dict(self.variables)
        merged["PATH"] = os.pathsep.join([str(self.python.parent), inherited.get("PATH", os.defpath)])
        return merged

    def to_json(self) -> dict[str, object]:
        """Return what `--dry-run` prints."""
        return {
            "argv": list(self.argv),
            "env": dict(self.variables),
            "base_url": self.base_url,
            "swaps_in_place": self.swaps_in_place,
            "log": self.log_name,
        }


def plan_server(settings: Settings, model: str | Path, python: Path, device: str) -> ServerPlan:
    """Return how the server is run for a model on `cpu` or `cuda`.

    Images need no options: screenshots lie within `image.image_min_pixels` and `image_max_pixels`, which LLaMA-Factory
    applies before the model's own processor, and both sides read that processor's limits from the same files.
    """
    serve = settings.serve
    variables = _cpu_variables(settings) if device == "cpu" else {}
    variables["VLLM_NO_USAGE_STATS"] = "1"
    if is_loopback(serve.host):
        # the endpoints that swap weights let their caller run worker methods: never on a reachable address
        variables["VLLM_SERVER_DEV_MODE"] = "1"
    return ServerPlan(
        python=python,
        model=str(model),
        host=serve.host,
        port=serve.port,
        served_name=serve.served_model_name,
        max_model_len=serve.max_model_len,
        options=(*_shared(settings), *(_cpu(settings) if device == "cpu" else _cuda(settings)), *serve.extra_args),
        variables=(*sorted(variables.items()), *_offline(str(model))),
        startup_timeout=serve.startup_timeout,
        stop_grace=serve.stop_grace,
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shared(settings: Settings) -> tuple[str, ...]:
    serve = settings.serve
    images = settings.context_config.history_window + 1
    parallel: tuple[str, ...] = ()
    if serve.tensor_parallel_size > 1:
        parallel += ("--tensor-parallel-size", str(serve.tensor_parallel_size))
    if serve.data_parallel_size > 1:
        parallel += ("--data-parallel-size", str(serve.data_parallel_size))
    return (
        *("--served-model-name", serve.served_model_name),
        *("--max-model-len", str(serve.max_model_len)),
        *("--max-num-seqs", str(serve.max_num_seqs)),
        *("--limit-mm-per-prompt", json.dumps({"image": images, "video": 0})),
        *("--seed", str(settings.seed)),
        *parallel,
    )


def _cuda(settings: Settings) -> tuple[str, ...]:
    serve = settings.serve
    return ("--dtype", serve.dtype, "--gpu-memory-utilization", str(serve.gpu_memory_utilization))


def _cpu(settings: Settings) -> tuple[str, ...]:
    serve = settings.serve
    return (
        *("--dtype", "float32" if serve.dtype == "auto" else serve.dtype),
        "--enforce-eager",
        # a request with a seed whose prompt is split ends the engine: never split, so a batch must hold a whole prompt
        "--no-enable-chunked-prefill",
        *("--max-num-batched-tokens", str(max(serve.max_model_len, 4096))),
    )


def _cpu_variables(settings: Settings) -> dict[str, str]:
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // 2))
    return {
        "VLLM_CPU_KVCACHE_SPACE": str(settings.serve.cpu_kvcache_gb),
        # bound to cores, the server and the browsers would fight for the same ones
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": threads,
    }


def _offline(model: str) -> tuple[tuple[str, str], ...]:
    """Return what keeps the server from asking the hub about a model that lies on this machine."""
    return (("HF_HUB_OFFLINE", "1"),) if Path(model).is_dir() else ()
