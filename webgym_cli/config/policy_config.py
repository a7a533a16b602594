"""The policy model and its sampling parameters. Names as in WebGym."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class PolicySettings(ConfigSection):
    """The model that acts, and how it samples."""

    base_model: str = "Qwen/Qwen3-VL-8B-Instruct"
    """Where the first policy comes from: a local folder or a Hugging Face id."""
    template: str = "auto"
    """LLaMA-Factory's template for this model; `auto`: that of its family, as its files or its name tell."""
    max_new_tokens: int = Field(default=3072, ge=1)
    """Longest response, in tokens."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature; 0: always the likeliest token."""
    top_p: float = Field(default=0.99, gt=0, le=1)
    """Only the likeliest tokens that have this probability together are sampled from."""
    top_k: int = Field(default=2, ge=-1)
    """How many of the likeliest tokens are sampled from; -1 or 0: all."""
    min_p: float = Field(default=0.0, ge=0, le=1)
    """Tokens less likely than this share of the likeliest one are left out; 0: none."""
    thinking: bool | None = None
    """The model thinks before it acts: what stands before `</think>` is no action and leaves the history; a response
    that never closes its thought is truncated. null: as its chat template or its name tells."""
