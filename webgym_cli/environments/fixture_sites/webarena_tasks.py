"""Tasks in WebArena's form over the fixture sites, from `webarena_tasks.yaml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from webgym_cli.environments.fixture_sites.browse_tasks import browse_sets
from webgym_cli.environments.fixture_sites.expressions import fill
from webgym_cli.environments.fixture_sites.registry import find_site
from webgym_cli.environments.fixture_sites.task_template import draw_names
from webgym_cli.environments.fixture_sites.tasks import find_task
from webgym_cli.records.webarena import AND, WebArenaSite

# The seed of what all these tasks are about.
WORLD = 1


@dataclass(frozen=True, slots=True)
class WebArenaFixture:
    """One task, and how it is solved."""

    config: Mapping[str, Any]
    """As WebArena writes it, with its placeholders."""
    expert: Sequence[Any]
    """Steps of `ExpertDriver.follow`."""
    drawn: Mapping[str, Any]
    """What the steps can name."""


@cache
def load_fixtures() -> dict[str, WebArenaFixture]:
    """Return the tasks by their ids."""
    text = Path(__file__).with_name("webarena_tasks.yaml").read_text(encoding="utf-8")
    worlds = {name: find_site(f"{name}.test").world(WORLD) for name in ("shop", "mail", "wiki")}
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
        **_fill_all(scored, drawn),
    }
    return WebArenaFixture(config, find_task(expert).expert if isinstance(expert, str) else expert, drawn)


def _fill_all(value: Any, names: Mapping[str, Any]) -> Any:
    """Return a value of YAML, each of its texts filled in."""
    if isinstance(value, dict):
        return {name: _fill_all(part, names) for name, part in value.items()}
    if isinstance(value, list):
        return [_fill_all(part, names) for part in value]
    return fill(value, names) if isinstance(value, str) else value
