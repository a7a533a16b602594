"""Settings `serve`: the vLLM server. The text under a field is its help."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class ServeSettings(ConfigSection):
    """The vLLM server."""

    host: str = "127.0.0.1"
    """Address to listen on. In-place weight swaps use vLLM's developer endpoints: keep it on loopback."""
    port: int = Field(default=8999, ge=0, le=65535)
    """Port; 0 takes a free one. Further replicas take the ports after it."""
    served_model_name: str = "policy"
    """The model's name in requests."""
    max_model_len: int = Field(default=32768, ge=64)
    """Longest prompt and response together, in tokens."""
    max_num_seqs: int = Field(default=512, ge=1)
    """Requests in one batch."""
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    """Tokens that vLLM computes in one step at most; null: its own choice (on a CPU the longest prompt)."""
    prefix_caching: bool = True
    """Keep what was computed for a prompt's beginning: the prompts of an episode share most of it."""
    mm_processor_cache_gb: float = Field(default=4.0, ge=0)
    """Memory for prepared images in GiB, in vLLM's front end and again in each engine: a screenshot is prepared once
    and sent in several prompts. 10 to 25 MB for 1280 x 768 pixels; 0: none."""
    enforce_eager: bool = False
    """Start without CUDA graphs: sooner up and with less memory, but slower. On a CPU always."""
    gpu_memory_utilization: float = Field(default=0.95, gt=0, le=1)
    """Share of GPU memory that vLLM takes (CUDA only)."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """GPUs that share one copy of the model."""
    data_parallel_size: int = Field(default=1, ge=1)
    """Copies of the model behind one server, each on `tensor_parallel_size` GPUs of its own. vLLM spreads requests over
    them without regard to which one has an episode's prompt cached: prefer `replicas`."""
    replicas: int | None = Field(default=None, ge=1)
    """Servers of our own on this machine, each with GPUs of its own; an episode's requests stay with one of them. null:
    as many as the GPUs carry, one on a CPU."""
    restarts: int = Field(default=2, ge=0)
    """How often a replica that dies in a rollout is started again, while the others go on; then it is left out."""
    during_training: Literal["auto", "sleep", "stop", "keep"] = "auto"
    """What the server does while a training needs the GPUs. `sleep`: it gives its memory back and keeps its process;
    `stop`: it ends; `keep`: it stays, where the trainer has GPUs of its own. `auto`: `sleep` on GPUs, where new weights
    can be loaded in place, else `stop`; `keep` on a CPU."""
    sleep_level: Literal[1, 2] = 2
    """2: a sleeping server drops the weights; 1: it keeps them in this machine's memory, once for each replica."""
    sleep_timeout: float = Field(default=120.0, gt=0)
    """Deadline for falling asleep, and for each step of waking up, in seconds; then it is stopped and started anew."""
    sleep_memory_gb: float = Field(default=10.0, gt=0)
    """GPU memory, in GiB on each GPU, that a sleeping server may still hold; above that it is stopped."""
    reasoning_parser: str = "auto"
    """vLLM's parser that tells a thought from the answer, for other clients: rollouts put both together again. `auto`:
    that of the model's family if it thinks; `none`: the response comes whole."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Precision of the weights; on CPUs without bf16 units float32 is the usable one."""
    startup_timeout: float = Field(default=600.0, gt=0)
    """Deadline until the server is healthy, in seconds."""
    stop_grace: float = Field(default=15.0, gt=0)
    """Seconds between TERM and KILL."""
    cpu_kvcache_gb: int = Field(default=1, ge=1)
    """Memory of the key-value cache in GiB (CPU only)."""
    extra_args: tuple[str, ...] = ()
    """More arguments for vLLM's server, as they stand."""
