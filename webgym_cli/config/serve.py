"""Settings `serve`: the vLLM server. The text under a field is its help."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection

# Numbers in most places, ids (`GPU-...`) in others.
GpuNames = tuple[Annotated[str, Field(coerce_numbers_to_str=True)], ...]


class ServeSettings(ConfigSection):
    """The vLLM server."""

    host: str = "127.0.0.1"
    """Listen address. In-place weight updates use vLLM's development endpoints: keep it on loopback."""
    port: int = Field(default=8999, ge=0, le=65535)
    """Listen port; 0: a free one. Further replicas use the following ports."""
    served_model_name: str = "policy"
    """Model name in requests."""
    max_model_len: int = Field(default=32768, ge=64)
    """Maximum length of prompt and response together, in tokens."""
    max_num_seqs: int = Field(default=512, ge=1)
    """Maximum number of sequences in a batch."""
    gpu_memory_utilization: float = Field(default=0.95, gt=0, le=1)
    """Fraction of GPU memory that vLLM allocates (CUDA only)."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """Number of GPUs per model copy."""
    data_parallel_size: int = Field(default=1, ge=1)
    """Number of model copies behind one server, each on its own `tensor_parallel_size` GPUs. vLLM's load balancing
    ignores the prefix caches: prefer `replicas`."""
    replicas: int | None = Field(default=None, ge=1)
    """Number of servers on this machine, each on its own GPUs; all requests of an episode go to the same one. null: as
    many as fit on the GPUs, one on a CPU."""
    gpus: GpuNames = ()
    """GPUs of the servers, by the names that `CUDA_VISIBLE_DEVICES` takes; none: all that it leaves. With `train.gpus`
    on other ones the servers keep running during a training."""
    restarts: int = Field(default=2, ge=0)
    """Maximum number of restarts of a server that dies or hangs while it is used; requests wait or go to the others.
    After them it is left out; if it was the last one, the command ends."""
    stall_timeout: float = Field(default=60.0, gt=0)
    """Time without a sign of life after which a running server counts as hanging, in seconds; it is then ended and
    started again. Signs are an answered request for one token, and counters in `/metrics` that move. Five times as long
    on a CPU while it computes, because a long prompt is one step there."""
    during_training: Literal["auto", "sleep", "stop", "keep"] = "auto"
    """State of the server while a training needs the GPUs. `sleep`: it frees GPU memory and keeps its process; `stop`:
    it is stopped; `keep`: it keeps running, for a trainer on other GPUs. `auto`: `keep` on a CPU, and where
    `serve.gpus` and `train.gpus` share none; else `sleep` if new weights can be loaded in place, else `stop`."""
    enable_lora: bool = True
    """Serve each version of a LoRA-trained policy as a named adapter, beside the previous one and without a pause, if
    the servers keep running during a training and the vision tower is frozen. Otherwise, and with false (for models
    without LoRA support in vLLM), merged weights are served."""
    reasoning_parser: str = "auto"
    """vLLM's reasoning parser, for other clients: rollouts join reasoning and answer again. `auto`: that of the model's
    family if it is a reasoning model; `none`: the response is returned whole."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Data type of the weights; use float32 on CPUs without bfloat16 support."""
    startup_timeout: float = Field(default=600.0, gt=0)
    """Time limit for the server to become healthy, in seconds."""
    cpu_kvcache_gb: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Size of the KV cache of each worker in GiB (CPU only). vLLM fills it with zeros at its start."""
    extra_args: tuple[str, ...] = ()
    """Additional arguments of vLLM's server, passed unchanged: `["--enforce-eager"]`. They override ours; one for the
    server's model, name, address, length or parallelism is refused, as its setting is read elsewhere too."""

    @property
    def workers(self) -> int:
        """Number of worker processes of one server, each on a GPU of its own where there are GPUs."""
        return self.tensor_parallel_size * self.data_parallel_size

    def fit(self, gpus: int) -> int:
        """Return the number of servers on a node with so many GPUs."""
        return min(gpus // self.workers, self.replicas or gpus)
