"""The policy model and its sampling parameters. Names as in WebGym."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class PolicySettings(ConfigSection):
    """The policy model and its sampling parameters."""

    base_model: str = "Qwen/Qwen3-VL-8B-Instruct"
    """Initial model: a local folder or a Hugging Face id."""
    template: str = "auto"
    """LLaMA-Factory's chat template of the model; `auto`: that of its family, detected from its files or name."""
    trust_remote_code: bool = False
    """Run the Python code in the model's folder or hub repository, in serving, training and merging. Only for
    models whose code you have read."""
    max_new_tokens: int = Field(default=3072, ge=1)
    """Maximum length of a response, in tokens. A response of a server that ignores it is cut at 16 characters per
    token."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature; 0: greedy decoding."""
    top_p: float = Field(default=0.99, gt=0, le=1)
    """Nucleus sampling: cumulative probability of the tokens that are sampled from."""
    top_k: int = Field(default=2, ge=-1)
    """Number of most likely tokens that are sampled from; -1 or 0: all."""
    min_p: float = Field(default=0.0, ge=0, le=1)
    """Minimum probability of a sampled token, relative to the most likely one; 0: no minimum."""
    thinking: bool | None = None
    """Whether the model is a reasoning model: text before `</think>` is not part of the action and is left out of the
    history; a response without `</think>` is truncated. null: detected from its chat template or name."""
