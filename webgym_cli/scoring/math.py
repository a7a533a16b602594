"""Reward functions for questions whose answer is a number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from webgym_cli.scoring.define import reward
from webgym_cli.scoring.numbers import matches_answer

_DIGITS = re.compile(r"\d+")


@reward
def math_reward_string_equal(final_response: str, answer: Any, trajectory: Sequence[Mapping[str, Any]]) -> float:
    """0 without a tool's result; else 1 where the last run of digits is the answer, as a text, and 0.1 otherwise."""
    if not _has_tool_result(trajectory):
        return 0.0
    digits = _DIGITS.findall(final_response)
    return 1.0 if digits and digits[-1] == answer else 0.1


@reward
def math_equal_reward(final_response: str, answer: Any) -> dict[str, float]:
    """1 where the response's answer equals the record's as a number or in LaTeX, else 0."""
    right = float(_is_right(final_response, answer))
    return {"reward": right, "acc": right}


@reward
def math_equal_reward_tool(
    final_response: str, answer: Any, trajectory: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """0 without a tool's result; else 1 where the answer is equal as a number or in LaTeX, and 0.1 otherwise."""
    right = _is_right(final_response, answer)
    used = _has_tool_result(trajectory)
    return {"reward": (1.0 if right else 0.1) if used else 0.0, "acc": float(right)}


def _is_right(final_response: str, answer: Any) -> bool:
    """Whether a response gives the answer; of a list of answers, one of them. `1 #### 72` of GSM8K's files is 72."""
    answers = answer if isinstance(answer, list | tuple) else [answer]
    return any(matches_answer(final_response, str(item)) for item in answers)


def _has_tool_result(trajectory: Sequence[Mapping[str, Any]]) -> bool:
    return any(message.get("role") == "tool" for message in trajectory)
