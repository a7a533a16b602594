"""Tasks in WebArena's format on the fixture sites, for runs without WebArena: one seed, and an expert for each task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from webgym_cli.config.model import Settings
from webgym_cli.environments.fixture_sites.expert import make_expert_run
from webgym_cli.environments.fixture_sites.expressions import draw_names, fill
from webgym_cli.environments.fixture_sites.registry import find_site
from webgym_cli.environments.fixture_sites.tasks import find_task
from webgym_cli.environments.sites.login_store import is_fixture
from webgym_cli.environments.sites.site_expert import ExpertRun
from webgym_cli.environments.webarena.browse_tasks import browse_sets
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Element
from webgym_cli.records.webarena import AND, WebArenaSite
from webgym_cli.records.webrl import AnyAction, WebRLAction, WebRLActionName
from webgym_cli.util.text import map_texts

# Fixture sites in place of WebArena's; the mail site replaces the forum.
ADDRESSES = {
    WebArenaSite.SHOPPING: "http://shop.test",
    WebArenaSite.REDDIT: "http://mail.test",
}
_LISTS = ("combobox", "listbox")
# Seed of the content of all these tasks.
WORLD = 1


@dataclass(frozen=True, slots=True)
class WebArenaFixture:
    """One task with its solution."""

    config: Mapping[str, Any]
    """Configuration in WebArena's format, with placeholders."""
    expert: Sequence[Any]
    """Steps of `follow_steps`."""
    drawn: Mapping[str, Any]
    """Names for the steps."""


@cache
def load_fixtures() -> dict[str, WebArenaFixture]:
    """Return the tasks by id."""
    text = Path(__file__).with_name("fixture_tasks.yaml").read_text(encoding="utf-8")
    worlds = {name: find_site(f"{name}.test").world(WORLD) for name in ("shop", "mail")}
    sets = [yaml.safe_load(text), *browse_sets().values()]
    return {task_id: _make_fixture(task_id, worlds, **fields) for tasks in sets for task_id, fields in tasks.items()}


def _make_fixture(
    task_id: str,
    worlds: Mapping[str, Any],
    *,
    sites: Sequence[str],
    expert: str | Sequence[Any],
    draw: Mapping[str, str] | None = None,
    **scored: Any,
) -> WebArenaFixture:
    drawn = draw_names(draw or {}, worlds)
    config = {
        "task_id": task_id,
        "sites": list(sites),
        "start_url": f" {AND} ".join(WebArenaSite(site).placeholder for site in sites),
        "require_login": False,
        "storage_state": None,
        "require_reset": False,
        **map_texts(scored, lambda text: fill(text, drawn)),
    }
    return WebArenaFixture(config, find_task(expert).expert if isinstance(expert, str) else expert, drawn)


def list_webarena_tasks() -> dict[str, Task]:
    """Return the tasks by id."""
    from webgym_cli.environments.webarena.tasks import read_config

    return {name: read_config(fixture.config, ADDRESSES) for name, fixture in load_fixtures().items()}


def require_experts(settings: Settings, tasks: Iterable[Task]) -> None:
    """Raise `UsageError` for a task without an expert."""
    for task in tasks:
        make_webarena_expert(task)


def make_webarena_expert(task: Task) -> ExpertRun:
    """Return an expert for one episode. Raises `UsageError` for a task without one."""
    if not is_fixture(task) or task.id not in load_fixtures():
        raise UsageError(
            f"task {task.id}: there is no expert for it in the environment webarena",
            hint="--policy vllm, or tasks of webarena:fixture",
        )
    fixture = load_fixtures()[task.id]
    return make_expert_run(fixture.expert, fixture.drawn)


def to_webrl_action(action: AnyAction, elements: Sequence[Element]) -> AnyAction:
    """Return an expert's action in WebRL's action set. Raises `BoundaryError` if it has no equivalent."""
    if isinstance(action, WebRLAction):
        return action
    if action.name is ActionName.NAVIGATE:
        detail = "the expert is lost: WebRL has no action that opens an address"
        raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, detail)
    if action.name is not ActionName.TYPE or action.element_id is None:
        return action
    text = action.text or ""
    if elements[action.element_id].role in _LISTS:
        return WebRLAction(name=WebRLActionName.SELECT, element_id=action.element_id, text=text)
    if text.endswith("\n"):
        return WebRLAction(name=WebRLActionName.SEARCH, element_id=action.element_id, text=text[:-1])
    return Action(name=ActionName.TYPE, element_id=action.element_id, text=text)
