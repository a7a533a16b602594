"""Manual play in a browser: start an episode from a page, show its instruction, and score it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import replace

from webgym_cli.environments.fixture_sites.episode import SiteEpisode
from webgym_cli.environments.fixture_sites.tasks import find_task, load_site_tasks
from webgym_cli.environments.fixture_sites.web import (
    SiteRequest,
    SiteResponse,
    message_page,
    not_found_page,
    parse_whole,
    redirect,
    render_page,
)
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task

# Path of these pages on each site; sites served to agents don't have them.
PREFIX = "/_/"
_LARGEST_SEED = 999_999_999


def serve_manual_play(
    episodes: MutableMapping[str, SiteEpisode],
    start_episode: Callable[[Task, int], str],
    host: str,
    token: str,
    request: SiteRequest,
) -> SiteResponse:
    """Return the response to a request for manual play. `start_episode` returns the token of a task and seed."""
    if request.path == f"{PREFIX}start" and request.method == "POST":
        response = _start(start_episode, host, request)
        if response.token:
            episodes.pop(token, None)
        return response
    if request.path != PREFIX:
        return not_found_page()
    live, answer = episodes.get(token), request.query.get("answer")
    return render_page(
        "door.html",
        host=host,
        tasks=[task for task in load_site_tasks().values() if task.host == host],
        live=live,
        verdict=live.score(answer) if live and answer is not None else None,
        answer=answer or "",
    )


def _start(start_episode: Callable[[Task, int], str], host: str, request: SiteRequest) -> SiteResponse:
    seed = parse_whole(request.field("seed"), 0, _LARGEST_SEED)
    if seed is None:
        return message_page("Bad seed", f"A seed is a whole number from 0 to {_LARGEST_SEED}.", 400)
    try:
        task = find_task(request.field("task"))
    except UsageError as error:
        return message_page("Unknown task", str(error), 400)
    if task.host != host:
        return message_page("Another site's task", f"{task.id} starts at http://{task.host}{PREFIX}", 400)
    return replace(redirect(PREFIX), token=start_episode(task.task, seed))
