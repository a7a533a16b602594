"""Reward functions for questions whose answer is a number."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from webgym_cli.scoring.define import reward
from webgym_cli.scoring.numbers import answers_equal
from webgym_cli.scoring.statements import extract_reference, find_answers
from webgym_cli.scoring.text import Messages, count_tool_results, list_answers

_DIGITS = re.compile(r"\d+")


@reward
def math_reward_string_equal(final_response: str, answer: Any, trajectory: Messages) -> float:
    """0 without a tool's result; else 1 where the last run of digits is the answer, as a text, and 0.1 otherwise."""
    if not count_tool_results(trajectory):
        return 0.0
    digits = _DIGITS.findall(final_response)
    # A number, a text, or the end of a worked answer in GSM8K's format.
    text = str(int(answer) if isinstance(answer, float) and answer.is_integer() else answer)
    return 1.0 if digits and digits[-1] == (extract_reference(text) or text).replace(",", "") else 0.1


@reward
def math_equal_reward(final_response: str, answer: Any) -> dict[str, float]:
    """1 where the response's answer equals the record's as a number or in LaTeX, else 0."""
    right = float(_is_right(final_response, answer))
    return {"reward": right, "acc": right}


@reward
def math_equal_reward_tool(final_response: str, answer: Any, trajectory: Messages) -> dict[str, float]:
    """0 without a tool's result; else 1 where the answer is equal as a number or in LaTeX, and 0.1 otherwise."""
    return _grade(_is_right(final_response, answer), trajectory)


@reward
def math_equal_reward_think(final_response: str, answer: Any, trajectory: Messages) -> dict[str, float]:
    """`math_equal_reward_tool`, and 0 where a response has no `</think>`."""
    thought = all("</think>" in content for content in _responses(trajectory))
    right = thought and count_tool_results(trajectory) > 0 and _is_right(final_response, answer)
    return _grade(right, trajectory, well_formed=thought)


@reward
def math_reward_thought_with_tool(final_response: str, answer: Any, trajectory: Messages) -> dict[str, float]:
    """`math_equal_reward_tool`, and 0 where a response does not begin with `Thought`."""
    thought = all(content.strip().lower().startswith("thought") for content in _responses(trajectory))
    return _grade(_is_right(final_response, answer), trajectory, well_formed=thought)


def _grade(right: bool, trajectory: Messages, *, well_formed: bool = True) -> dict[str, float]:
    earned = well_formed and count_tool_results(trajectory) > 0
    return {"reward": float(max(0.1, right) * earned), "acc": float(right)}


def _is_right(final_response: str, answer: Any) -> bool:
    """Whether a response gives the answer, or one of several; a worked answer of GSM8K (`... #### 72`) counts as 72."""
    wanted = [extract_reference(item) or item for item in list_answers(answer)]
    given = dict.fromkeys(find_answers(final_response))
    return any(answers_equal(ours, theirs) for ours, theirs in product(given, wanted))


def _responses(trajectory: Messages) -> list[str]:
    return [str(message.get("content") or "") for message in trajectory if message.get("role") == "assistant"]
