"""Registry of reward functions."""

from __future__ import annotations

from collections.abc import Iterable

from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.scoring.define import Reward
from webgym_cli.util.json_values import as_list
from webgym_cli.util.optional import known_or, when
from webgym_cli.util.registry import Registry, list_functions
from webgym_cli.util.user_code import is_own

# Arguments of webgym's own reward functions that are compared with the response.
_ANSWERS = frozenset({"answer", "answers"})

REWARDS: Registry[Reward] = Registry(
    noun="reward",
    setting="agent.reward_name",
    package="webgym_cli.scoring",
    item_type=Reward,
    builtin={
        **list_functions(
            "webgym_cli.scoring.math",
            *("math_reward_string_equal", "math_equal_reward", "math_equal_reward_tool", "math_equal_reward_think"),
            "math_reward_thought_with_tool",
        ),
        "math_string_equal_reward_tool": "webgym_cli.scoring.math:math_reward_string_equal",
        **list_functions(
            "webgym_cli.scoring.text",
            *("qa_em_reward", "qa_f1_reward", "qa_f1_reward_tool", "qa_em_reward_tool_call", "qa_em_format_reward"),
            *("ok_vqa_reward", "infoseek_reward", "llm_as_judge_reward", "format_reward"),
        ),
    },
)


def reward_fields(task: Task) -> dict[str, object]:
    """Return the fields of a task's record by argument name of reward functions.

    A record's `golden_answers` is also its `answer`.
    """
    known: dict[str, object] = when(task.reference_answer is not None, {"answer": task.reference_answer})
    if "golden_answers" in task.extra:
        known = {"answer": task.extra["golden_answers"]}
    named = {name: value for name in ("site", "role", "check") if (value := getattr(task, name))}
    return {**known, **named, **task.extra}


def task_fields(task: Task) -> dict[str, object]:
    """Return the fields of a task by argument name of checks, experts and set-ups: its own, and its record's."""
    return {**task.model_dump(exclude={"extra"}), **reward_fields(task)}


def require_fields(reward: Reward, tasks: Iterable[Task]) -> None:
    """Raise `UsageError` for the first task that lacks a field that the reward function requires.

    Nor may webgym's own get an answer that no response could equal: null, empty, or an object, as TriviaQA's.
    """
    compared = {name for name in _ANSWERS & {*reward.required} if is_own(reward.function)}
    for task in tasks:
        fields = reward_fields(task)
        reward.require_fields(task, fields, REWARDS.setting)
        for name in compared:
            items = as_list(fields[name])
            if any(isinstance(item, dict) for item in items) or not any(str(known_or(it, "")).strip() for it in items):
                raise UsageError(
                    f"task {task.id}: {name}: {str(fields[name])[:80]} is nothing that {reward.name} can compare with",
                    hint=f"write {name} as a text, a number or a list of them; or name a reward function of your own",
                )
