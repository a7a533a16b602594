"""Asks the judge whether an answer is what a task's `fuzzy_match` wants. What can't be read is never a yes."""

from __future__ import annotations

from dataclasses import dataclass

from webgym_cli.agent.chat import ChatClient, ReplyFormat
from webgym_cli.config.judge import JudgeSettings
from webgym_cli.environments.webarena.fuzzy_prompt import VERDICT_SCHEMA, FuzzyVerdict, fuzzy_messages
from webgym_cli.environments.webarena.text_match import FuzzyQuestion

_FORM = ReplyFormat("fuzzy_match", FuzzyVerdict, VERDICT_SCHEMA)


@dataclass(slots=True)
class _Requests:
    calls: int = 0


class FuzzyJudge:
    """The judge of the settings; connects when it is first asked."""

    def __init__(self, settings: JudgeSettings) -> None:
        """Raises `SettingsError` for a key that no header can carry."""
        self._model = settings.model
        self._chat = ChatClient(settings)
        self._requests = _Requests()

    async def __call__(self, question: FuzzyQuestion) -> bool:
        """Return whether the answer is right. Raises `BoundaryError` (judge_failed) where the judge does not tell."""
        messages = [{"role": message.role, "content": message.content} for message in fuzzy_messages(question)]
        reply = await self._chat.ask(messages, _FORM, self._requests, model=self._model)
        return reply.verdict == "right"

    async def close(self) -> None:
        """Close the connections."""
        await self._chat.close()
