"""What the policy is, samples and is shown: model, prompt and images. Names as in WebGym."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection
from webgym_cli.records.prompt_version import InteractionMode, PromptName, PromptVersion


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


class ImageSettings(ConfigSection):
    """The image sizes that serving and training share."""

    image_min_pixels: int = Field(default=32 * 32, ge=1)
    """Minimum number of pixels of an image; written into LLaMA-Factory's configuration."""
    image_max_pixels: int = Field(default=1280 * 1024, ge=1)
    """Maximum number of pixels of an image. Steps with larger screenshots are not trained on: LLaMA-Factory would
    downscale what vLLM processed at full size."""


class ContextSettings(ConfigSection):
    """The policy's prompt."""

    interaction_mode: InteractionMode = InteractionMode.COORDINATES
    """How actions refer to elements: `coordinates` (0-1000 on both axes) or `set_of_marks` (numbered elements)."""
    history_window: int = Field(default=4, ge=0)
    """Number of earlier rounds included in full; older ones are shortened to one line of text each."""
    max_images: int | None = Field(default=None, ge=1)
    """Maximum number of screenshots in a prompt, the newest ones; null: one per round of the window."""
    prompt_version: PromptName = PromptVersion.COMPLETE
    """Prompt format and its action set. `vanilla`: a sentence and its tool call; `complete`: preceded by memory,
    progress and intention; `full`, `full_vanilla`: these with all actions; `webgym`, `webgym_vanilla`: with WebGym's
    actions (typing always presses Enter); `computer_use`: Qwen3-VL's tool, `ui_tars`: UI-TARS' calls, both in
    coordinates; `webrl`: WebRL's rounds with text pages, required by the environment `webarena`; `webrl_released`: the
    single raw text that WebRL's published models were trained on; or the name of a plugin's action set."""
    observation: Literal["picture", "tree"] = "picture"
    """What a policy gets of a page: `picture`: a screenshot, with `set_of_marks` also the list of marked elements;
    `tree`: also the page in sight as an accessibility tree (roles, levels, names, states and texts, with the numbers of
    the marks; at most about 3,000 tokens, in the newest round), and how far it can be scrolled. Not for `webrl`, whose
    pages are text."""
    more_actions: bool = False
    """Add actions to the set: `long_press`, `wait_for` a text, with marks a `position` within the element, and in the
    basic sets `hover` at a point and `scroll` at a target. The system prompt changes with it. Not for `ui_tars`,
    `webrl` and plugins' sets."""
    explain_actions: bool = True
    """`webrl`: include a system message that describes the actions, with the text of `agent.system_prompt` if it is
    set. `false`: no system message, as for models that were trained without one."""
    lenient_actions: bool = False
    """`webrl`: accept a call after words on its line, the last one of several calls, and superfluous arguments, which
    are ignored. `false`: such responses are no actions."""
    max_characters: int = Field(default=15872, ge=1)
    """`webrl`: maximum length of history and page in a prompt, in characters; the end of the page is truncated."""
