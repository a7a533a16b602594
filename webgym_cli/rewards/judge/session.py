"""Judge session: the interface of a protocol to the judge for one trajectory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from webgym_cli.agent.client.chat import ChatError, JudgeReply
from webgym_cli.config.judge import JudgeSettings
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.records.judgement import Verdict
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.judge.client import JudgeClient, JudgeContext
from webgym_cli.rewards.judge.question import JudgeQuestion
from webgym_cli.tasks.encryption import list_secrets, replace_texts


@dataclass(slots=True)
class JudgeSession:
    """State of judging one trajectory: client, context and the judgement's fields."""

    trajectory: Trajectory
    settings: JudgeSettings
    client: JudgeClient
    context: JudgeContext
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the judgement (`facts`, `claims`, `key_points`, ...), added one by one; stored even after a failure."""

    @property
    def max_images(self) -> int:
        """Maximum number of screenshots per verdict, of the settings or else of the protocol."""
        assert self.settings.max_images is not None, "the judge fills in the protocol's"
        return self.settings.max_images

    async def ask(self, question: JudgeQuestion) -> JudgeReply:
        """Return the judge's reply to one question. Raises `ChatError` and `StoreError`.

        The reply to a question about an encrypted task may quote its plain text: `Judge` stores no word of it.
        """
        if secrets := list_secrets(self.trajectory.task):
            question = replace(question, data=replace_texts(question.data, secrets))
        return await self.client.ask(question, self.context)

    async def vote(self, question: JudgeQuestion, text: str) -> Verdict:
        """Return the majority verdict of `votes` replies. Raises `ChatError` if failed replies could change it."""
        votes = self.settings.votes
        replies = await gather_or_cancel(*(self._vote_once(question) for _ in range(votes)))
        read = [reply for reply in replies if isinstance(reply, JudgeReply)]
        yes = sum(reply.yes for reply in read)
        passed = 2 * yes > votes
        if not passed and 2 * (len(read) - yes) < votes:  # the failed replies could change the majority
            errors = [reply for reply in replies if isinstance(reply, ChatError)]
            raise next((error for error in errors if error.unavailable), errors[0])
        reason = next(reply.reason for reply in read if reply.yes is passed)
        return Verdict(question=text, passed=passed, reason=reason, votes=tuple(reply.yes for reply in read))

    async def _vote_once(self, question: JudgeQuestion) -> JudgeReply | ChatError:
        try:
            return await self.ask(question)
        except ChatError as error:
            return error
