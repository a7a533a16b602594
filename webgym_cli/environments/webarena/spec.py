"""WebArena as a registered environment: a task's own evaluation gives the reward; its sites may not be shared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.environments.registry import EnvironmentSpec, ExclusiveResources
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import PromptVersion
from webgym_cli.tasks.registry import select_named

if TYPE_CHECKING:
    from webgym_cli.tasks.convert import ConversionResult

# WebArena's format wants an evaluation; this one is known as none, so that only a reward model scores the task.
_NO_EVALUATION = {
    "eval_types": ["string_match"],
    "reference_answers": {"exact_match": "N/A"},
    "reference_url": "",
    "program_html": [],
    "string_note": "",
    "reference_answer_raw_annotation": "",
}
# The fields that a generated task takes over from the one that it starts like.
_SITE_FIELDS = ("sites", "require_login", "storage_state", "geolocation", "require_reset", "start_urls")


def _list_tasks(names: str) -> list[Task]:
    from webgym_cli.environments.fixture_sites.browse_tasks import browse_sets
    from webgym_cli.environments.fixture_sites.webarena_tasks import list_webarena_tasks

    tasks = list_webarena_tasks()
    sets: dict[str, list[str]] = {name: list(members) for name, members in browse_sets().items()}
    sets["fixture"] = [name for name in tasks if name.startswith("fixture-")]
    example = "-s tasks.train=webarena:fixture"
    selected = sets.get(names) or select_named(names, list(tasks), "WebArena's form has no fixture task", example)
    return [tasks[name] for name in selected]


def _make_pool(settings: Settings) -> EnvironmentPool:
    from webgym_cli.environments.webarena.environment import WebArenaPool

    return WebArenaPool(settings)


def _check_settings(settings: Settings, tasks: Sequence[Task]) -> None:
    """Raise `WebGymError` for a judge, a site, an account or a form of evaluation that tasks lack."""
    from webgym_cli.environments.webarena.requirements import require_evaluations
    from webgym_cli.environments.webarena.site_scheduler import require_sites

    require_evaluations(settings, tasks)
    require_sites(settings, tasks)


def _require_expert(settings: Settings, tasks: Sequence[Task]) -> None:
    from webgym_cli.environments.fixture_sites.webarena_tasks import require_webarena_expert

    for task in tasks:
        require_webarena_expert(task)


def _claim(settings: Settings, task: Task) -> frozenset[str]:
    from webgym_cli.environments.webarena.site_scheduler import exclusive_sites

    return frozenset(exclusive_sites(settings, task))


def _map_isolation(settings: Settings, tasks: Iterable[Task]) -> Mapping[str, str]:
    from webgym_cli.environments.webarena.site_scheduler import map_isolation

    return map_isolation(settings, tasks)


def _describe(isolation: Mapping[str, str]) -> str:
    from webgym_cli.environments.webarena.site_scheduler import describe_isolation

    return describe_isolation(isolation)


async def _prepare(settings: Settings, tasks: Iterable[Task]) -> Sequence[str]:
    from webgym_cli.environments.webarena.site_scheduler import log_in_to_sites

    return await log_in_to_sites(settings, tasks)


def _new_task_fields(task: Task) -> dict[str, Any]:
    return {name: task.extra[name] for name in _SITE_FIELDS if name in task.extra} | {"eval": _NO_EVALUATION}


def _group_name(task: Task) -> str:
    sites = task.extra.get("sites")
    return "+".join(sorted(map(str, sites))) if isinstance(sites, list) else ""


def _convert(path: Path, settings: Settings, sites: Sequence[str]) -> ConversionResult:
    from webgym_cli.environments.webarena.convert import convert_configurations

    return convert_configurations(path, settings, sites)


SPEC = EnvironmentSpec(
    name="webarena",
    benchmarks=("webarena", "visualagentbench", "webrl"),
    list_tasks=_list_tasks,
    converters={"webarena": _convert},
    make_pool=_make_pool,
    action_sets=(PromptVersion.WEBRL, PromptVersion.WEBRL_RELEASED),
    require_expert=_require_expert,
    check_settings=_check_settings,
    scores_unfinished=True,
    resources=ExclusiveResources(_claim, _map_isolation, _describe, _prepare),
    new_task_fields=_new_task_fields,
    group_name=_group_name,
)
