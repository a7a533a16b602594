"""The prompt. Names as in WebGym."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.config.section import ConfigSection
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.trajectory import PromptName, PromptVersion


class ContextSettings(ConfigSection):
    """What the policy is shown."""

    interaction_mode: InteractionMode = InteractionMode.COORDINATES
    """`coordinates` (0-1000 on both axes) or `set_of_marks` (numbered elements)."""
    history_window: int = Field(default=4, ge=0)
    """Earlier rounds sent in full; older ones become one line of text each."""
    max_images: int | None = Field(default=None, ge=1)
    """Screenshots in a prompt at most, the newest ones; null: one for every round of the window."""
    prompt_version: PromptName = PromptVersion.COMPLETE
    """`vanilla`: an action and its call; `complete`: memory, progress and intention before them; `webrl`: WebRL's
    rounds, in which the page is text; for the environment `webarena`, which takes no other.
    Or an action set of your own, by the name that a plugin registered."""
    explain_actions: bool = True
    """`webrl`: a system message states the action language, in the words of `agent.system_prompt` if it is set.
    `false`: there is none, as for models that were trained without one."""
    max_characters: int = Field(default=15872, ge=1)
    """`webrl`: characters of history and page in a prompt, at most; the end of the page is cut."""
