"""Registration of the environment `tools`: questions with tools, rewards from a reward function."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.environments.registry import EnvironmentSpec
from webgym_cli.environments.tools.question_answer import read_question
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.tasks.format import read_task
from webgym_cli.util.registry import lazy, suggest_name

# The file of each set of questions, and its part of it. The field `expression` is for the expert alone.
_SETS = {
    "all": ("arithmetic", slice(None)),
    "train": ("arithmetic", slice(160)),
    "test": ("arithmetic", slice(160, None)),
    "sums-train": ("sums", slice(240)),
    "sums-test": ("sums", slice(240, None)),
}


def _list_tasks(name: str) -> list[Task]:
    if name not in _SETS:
        raise UsageError(f"tasks: there is no set arithmetic:{name}", hint=suggest_name(name, _SETS))
    file, part = _SETS[name]
    lines = Path(__file__).with_name(f"{file}.jsonl").read_text(encoding="utf-8").splitlines()
    return [read_task(json.loads(line)) for line in lines[part]]


def _check_settings(settings: Settings, tasks: Sequence[Task]) -> None:
    """Raise `UsageError` for tools or a reward that can't be loaded, or a task without fields that they need."""
    from webgym_cli.agent.client.chat import require_endpoint
    from webgym_cli.scoring.registry import REWARDS, require_fields, reward_fields
    from webgym_cli.tools.registry import find_tools, require_record_fields

    tools = find_tools(settings.agent.tools)
    for task in tasks:
        require_record_fields(tools, task.id, reward_fields(task))
    properties = {tool.name: tool.schema["function"]["parameters"]["properties"] for tool in tools}
    lacking = [name for name, parameters in properties.items() if "code" not in parameters]
    if settings.agent.call_format == "code" and lacking:
        raise UsageError(
            f"agent.call_format=code: {lacking[0]} has no parameter code, so no policy could call it",
            hint="take it out of agent.tools, or -s agent.call_format=hermes",
        )
    reward = REWARDS.find(settings.agent.reward_name)
    require_fields(reward, tasks)
    if "judge" in reward.required and not all("judge" in task.extra for task in tasks):
        require_endpoint("judge", settings.judge, "-s judge.base_url=http://HOST:PORT/v1")


SPEC = EnvironmentSpec(
    name="tools",
    prefix="arithmetic",
    list_tasks=_list_tasks,
    read_record=read_question,
    make_pool=lazy("webgym_cli.environments.tools.environment:ToolsPool"),
    require_expert=lazy("webgym_cli.environments.tools.environment:require_workings"),
    check_settings=_check_settings,
    has_reward_function=True,
    max_steps=lambda settings, task, split: settings.agent.max_turns,
)
