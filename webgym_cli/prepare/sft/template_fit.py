"""Adapts samples to LLaMA-Factory's template if the model's chat template adds other text around the messages."""

from __future__ import annotations

from collections.abc import Callable

from webgym_cli.agent.prompts.webrl_prompt import STOP, is_raw
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.records.sample import Message, Sample

# Text that LLaMA-Factory's template adds before a response, but that the model samples itself.
OPENINGS = {"glm4": "\n"}


def template_fit(settings: Settings, tokens: ModelTokens) -> Callable[[Sample], Sample]:
    """Return a function that adapts a sample so that LLaMA-Factory renders it as it was sent.

    Llama's chat templates put dates before the system message, which become part of the message, and strip texts.
    """
    opening = OPENINGS.get(settings.policy_config.template, "")

    def fit(sample: Sample) -> Sample:
        *prompt, reply = sample.messages
        if is_raw(prompt):
            # LLaMA-Factory's template `empty` adds nothing
            raw = prompt[0].model_copy(update={"content": tokens.first + prompt[0].content})
            ended = reply.model_copy(update={"content": reply.content + STOP})
            return sample.model_copy(update={"messages": (raw, ended)})
        if tokens.strips:
            prompt = [message.model_copy(update={"content": message.content.strip()}) for message in prompt]
        # not above: raw texts need no chat template, and base models have none
        if block := tokens.date_block:
            has_system = prompt[0].role == "system"
            system = block + (prompt[0].content if has_system else "")
            prompt = [Message(role="system", content=system), *prompt[has_system:]]
        reply = reply.model_copy(update={"content": reply.content.removeprefix(opening)})
        return sample.model_copy(update={"messages": (*prompt, reply)})

    return fit
