"""Tasks in WebArena's form over the fixture sites, for runs without WebArena: one world, each task with an expert."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from webgym_cli.environments.fixture_sites.experts import SiteExpert
from webgym_cli.environments.fixture_sites.server import HOSTS
from webgym_cli.environments.fixture_sites.webarena_tasks import load_fixtures
from webgym_cli.errors import UsageError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Element
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.records.webrl import AnyAction, WebRLAction, WebRLActionName

# What stands for WebArena's sites; the mail for its forum.
ADDRESSES = {
    WebArenaSite.SHOPPING: "http://shop.test",
    WebArenaSite.WIKIPEDIA: "http://wiki.test",
    WebArenaSite.REDDIT: "http://mail.test",
}
_LISTS = ("combobox", "listbox")


def list_webarena_tasks() -> dict[str, Task]:
    """Return the tasks by their ids."""
    from webgym_cli.environments.webarena.tasks import read_config

    return {name: read_config(fixture.config, ADDRESSES) for name, fixture in load_fixtures().items()}


def is_fixture(task: Task) -> bool:
    """Tell whether a task of WebArena starts on the fixture sites, which are served in the process that runs it."""
    starts = task.extra.get("start_urls") or [task.start_url]
    return task.environment == "webarena" and all(urlsplit(str(url)).hostname in HOSTS for url in starts)


def require_webarena_expert(task: Task) -> None:
    """Raise `UsageError` unless an expert solves the task."""
    if not is_fixture(task) or task.id not in load_fixtures():
        raise UsageError(
            f"task {task.id}: there is no expert for it in the environment webarena",
            hint="--policy vllm, or tasks of webarena:fixture",
        )


def make_webarena_expert(task: Task) -> SiteExpert:
    """Return an expert for one episode. Raises as `require_webarena_expert`."""
    require_webarena_expert(task)
    fixture = load_fixtures()[task.id]
    return SiteExpert(fixture.expert, fixture.drawn)


def to_webrl_action(action: AnyAction, elements: Sequence[Element]) -> AnyAction:
    """Return an expert's action as WebRL says it. Raises `LookupError` for what it can't say."""
    if isinstance(action, WebRLAction):
        return action
    if action.name is ActionName.NAVIGATE:
        raise LookupError("WebRL has no action that opens an address")
    if action.name is not ActionName.TYPE or action.element_id is None:
        return action
    text = action.text or ""
    if elements[action.element_id].role in _LISTS:
        return WebRLAction(name=WebRLActionName.SELECT, element_id=action.element_id, text=text)
    if text.endswith("\n"):
        return WebRLAction(name=WebRLActionName.SEARCH, element_id=action.element_id, text=text[:-1])
    return Action(name=ActionName.TYPE, element_id=action.element_id, text=text)
