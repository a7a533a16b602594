"""Reward functions that query a language model."""

from __future__ import annotations

from typing import Any

from webgym_cli.scoring.define import reward


@reward
async def llm_as_judge_reward(final_response: str, question: str, answer: Any, judge: Any) -> dict[str, Any]:
    """1 where the model of the settings `judge` finds that the response gives the record's answer, else 0."""
    ruling = await judge(
        "Does the response answer the question as the reference answer does? Other words for the same are right; a "
        "response with several answers is not.",
        question=question,
        reference=answer,
        response=final_response,
    )
    return {"reward": float(ruling.yes), "reason": ruling.reason}
