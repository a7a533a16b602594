"""The door for people: starts an episode from a page, shows its instruction, and scores it."""

from __future__ import annotations

from webgym_cli.environments.fixture_sites.episode import Episodes
from webgym_cli.environments.fixture_sites.tasks import find_task, site_tasks
from webgym_cli.environments.fixture_sites.web import Reply, Visit, missing, notice, page, redirect, whole
from webgym_cli.errors import UsageError

PREFIX = "/_/"
"""Where the door stands on each site. Sites that agents visit don't have it."""
_LARGEST_SEED = 999_999_999


def answer(episodes: Episodes, host: str, token: str, visit: Visit) -> tuple[Reply, str | None]:
    """Answer a visit at the door. Returns the reply and the token of an episode that was started."""
    if visit.path == PREFIX:
        return _show(episodes, host, token, visit.query.get("answer")), None
    if visit.path == f"{PREFIX}start" and visit.method == "POST":
        return _start(episodes, host, token, visit)
    return missing(), None


def _show(episodes: Episodes, host: str, token: str, told: str | None) -> Reply:
    live = episodes.find(token)
    return page(
        "door.html",
        host=host,
        tasks=[task for task in site_tasks() if task.start_url == f"http://{host}/"],
        live=live,
        instruction=live.task.asked(live.draft) if live else "",
        verdict=live.score(told) if live and told is not None else None,
        answer=told or "",
    )


def _start(episodes: Episodes, host: str, token: str, visit: Visit) -> tuple[Reply, str | None]:
    seed = whole(visit.field("seed"), 0, _LARGEST_SEED)
    if seed is None:
        return notice("Bad seed", f"A seed is a whole number from 0 to {_LARGEST_SEED}.", 400), None
    try:
        task = find_task(visit.field("task"))
    except UsageError as error:
        return notice("Unknown task", str(error), 400), None
    if task.host != host:
        return notice("Another site's task", f"{task.id} starts at http://{task.host}{PREFIX}", 400), None
    episodes.end(token)
    return redirect(PREFIX), episodes.start(task.task, seed)
