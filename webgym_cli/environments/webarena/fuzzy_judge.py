"""Judge for `fuzzy_match`: the judge of reward functions, with WebArena's two questions."""

from __future__ import annotations

from webgym_cli.config.judge import JudgeSettings
from webgym_cli.environments.tools.answer_judge import AnswerJudge
from webgym_cli.environments.webarena.text_match import FuzzyKind

_QUESTIONS = {
    "same": (
        "Is `answer`, by an agent that operated a website for a user, a right answer to `task`? It is if it tells "
        "everything that `reference` tells, in whatever words, units or order, and nothing that contradicts it. Where "
        "a part of the reference is missing or differs, it is not."
    ),
    "unachievable": (
        "`task`, which a user gave an agent that operated a website, can't be done; `reference` says why. Is `answer` "
        "right? It is if it says that the task can't be done and the reason that it gives or implies agrees with the "
        "reference. An answer that claims to have done the task, or gives another reason, is not."
    ),
}


class FuzzyJudge:
    """The configured judge, connected on first use."""

    def __init__(self, settings: JudgeSettings) -> None:
        self._judge = AnswerJudge(settings)

    async def __call__(self, kind: FuzzyKind, intent: str, reference: str, answer: str) -> bool:
        """Return whether the answer is right. Raises `BoundaryError` (judge_failed) without a verdict."""
        return (await self._judge(_QUESTIONS[kind], task=intent, reference=reference, answer=answer)).yes

    async def close(self) -> None:
        """Close the connections."""
        await self._judge.close()
