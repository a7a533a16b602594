"""Tasks in WebArena's format on the fixture sites, for runs without WebArena: one seed, and an expert for each task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from webgym_cli.config.model import Settings
from webgym_cli.environments.fixture_sites.episode import SITES, WORLD
from webgym_cli.environments.fixture_sites.expert import make_expert_run
from webgym_cli.environments.fixture_sites.expressions import draw_names, fill, load_words
from webgym_cli.environments.fixture_sites.shop import CATEGORIES
from webgym_cli.environments.fixture_sites.tasks import find_task
from webgym_cli.environments.sites.accounts import is_fixture
from webgym_cli.environments.sites.site_expert import ExpertRun
from webgym_cli.environments.webarena.tasks import read_config
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.records.webarena import AND, WebArenaSite
from webgym_cli.tasks.registry import select_named
from webgym_cli.util.text import map_texts

# Fixture sites in place of WebArena's; the mail site replaces the forum.
ADDRESSES = {
    WebArenaSite.SHOPPING: "http://shop.test",
    WebArenaSite.REDDIT: "http://mail.test",
}


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
    text = Path(__file__).with_name("webarena_tasks.yaml").read_text(encoding="utf-8")
    worlds = {name: SITES[f"{name}.test"].world(WORLD) for name in ("shop", "mail")}
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


def list_tasks(names: str) -> list[Task]:
    """Return tasks: a set of `browse_sets`, all others (`fixture`), or ids separated by commas. Raises `UsageError`."""
    tasks = {name: read_config(fixture.config, ADDRESSES) for name, fixture in load_fixtures().items()}
    sets: dict[str, list[str]] = {name: list(members) for name, members in browse_sets().items()}
    sets["fixture"] = [name for name in tasks if name.startswith("fixture-")]
    example = "-s tasks.train=webarena:fixture"
    selected = sets.get(names) or select_named(names, list(tasks), "WebArena's form has no fixture task", example)
    return [tasks[name] for name in selected]


def make_expert(task: Task) -> ExpertRun:
    """Return an expert for one episode. Raises `UsageError` for a task without one."""
    if not is_fixture(task) or task.id not in load_fixtures():
        raise UsageError(
            f"task {task.id}: there is no expert for it in the environment webarena",
            hint="--policy vllm, or tasks of webarena:fixture",
        )
    fixture = load_fixtures()[task.id]
    return make_expert_run(fixture.expert, fixture.drawn)


def require_experts(settings: Settings, tasks: Iterable[Task]) -> None:
    """Raise `UsageError` for a task without an expert."""
    for task in tasks:
        make_expert(task)


# Wordings of tasks that ask for a category of the shop's directory.
PHRASES: list[str] = load_words("shop")["phrases"]
# Phrasings of a category's tasks, counted from the number of the category.
_TEST, _TRAIN = (1, 6), (0, 5)


def browse_sets() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the tasks of each set by their ids, with the fields of `webarena_tasks.yaml`."""
    return {"browse-train": dict(_make_tasks(_TRAIN)), "browse-test": dict(_make_tasks(_TEST))}


def _make_tasks(later: tuple[int, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, category in enumerate(CATEGORIES):
        for phrase in ((number + place) % len(PHRASES) for place in later):
            yield f"browse-{category.lower()}-{phrase}", _fields(category, PHRASES[phrase])


def _fields(category: str, phrase: str) -> dict[str, Any]:
    address = f"__SHOPPING__/directory/{category.lower()}"
    return {
        "sites": ["shopping"],
        "start_url": "__SHOPPING__/directory",
        "intent": phrase.format(category),
        "eval": {"eval_types": ["url_match"], "reference_url": address, "url_note": "EXACT"},
        "expert": [{"click": f"link {category}"}, {"answer": ""}],
    }
