"""Registration of the environment `webarena`: rewards from the tasks' own evaluations, and exclusive sites."""

from __future__ import annotations

from typing import Any

from webgym_cli.environments.registry import EnvironmentSpec
from webgym_cli.records.task import SITE_ADDRESSES, Task
from webgym_cli.util.registry import lazy

# WebArena's format requires an evaluation; this one counts as none, so that only a reward model scores the task.
_NO_EVALUATION = {
    "eval_types": ["string_match"],
    "reference_answers": {"exact_match": "N/A"},
    "reference_url": "",
    "program_html": [],
    "string_note": "",
    "reference_answer_raw_annotation": "",
}
# Fields that a generated task copies from its seed.
_SITE_FIELDS = ("sites", "require_login", "storage_state", "geolocation", "require_reset", "start_urls", SITE_ADDRESSES)


def _new_task_fields(task: Task) -> dict[str, Any]:
    return {name: task.extra[name] for name in _SITE_FIELDS if name in task.extra} | {"eval": _NO_EVALUATION}


def _group_name(task: Task) -> str:
    sites = task.extra.get("sites")
    return "+".join(sorted(map(str, sites))) if isinstance(sites, list) else ""


SPEC = EnvironmentSpec(
    name="webarena",
    benchmarks=("webarena", "visualagentbench", "webrl"),
    list_tasks=lazy("webgym_cli.environments.fixture_sites.webarena_tasks:list_tasks"),
    make_pool=lazy("webgym_cli.environments.webarena.environment:WebArenaPool"),
    observations=("text",),
    require_expert=lazy("webgym_cli.environments.fixture_sites.webarena_tasks:require_experts"),
    check_settings=lazy("webgym_cli.environments.webarena.requirements:check_settings"),
    scores_unfinished=True,
    has_sites=True,
    new_task_fields=_new_task_fields,
    group_name=_group_name,
)
