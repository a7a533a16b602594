"""The door for people: starts an episode from a page, shows its instruction, and scores it."""

from __future__ import annotations

from webgym_cli.environments.fixture_sites.episode import EpisodeTable
from webgym_cli.environments.fixture_sites.tasks import find_task, list_site_tasks
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

# Where the door stands on each site. Sites that agents request don't have it.
PREFIX = "/_/"
_LARGEST_SEED = 999_999_999


def serve_manual_play(
    episodes: EpisodeTable, host: str, token: str, request: SiteRequest
) -> tuple[SiteResponse, str | None]:
    """Answer a request at the door. Returns the reply and the token of an episode that was started."""
    if request.path == PREFIX:
        return _show(episodes, host, token, request.query.get("answer")), None
    if request.path == f"{PREFIX}start" and request.method == "POST":
        return _start(episodes, host, token, request)
    return not_found_page(), None


def _show(episodes: EpisodeTable, host: str, token: str, problem: str | None) -> SiteResponse:
    live = episodes.find(token)
    return render_page(
        "door.html",
        host=host,
        tasks=[task for task in list_site_tasks() if task.start_url == f"http://{host}/"],
        live=live,
        instruction=live.task.render_instruction(live.instance) if live else "",
        verdict=live.score(problem) if live and problem is not None else None,
        answer=problem or "",
    )


def _start(episodes: EpisodeTable, host: str, token: str, request: SiteRequest) -> tuple[SiteResponse, str | None]:
    seed = parse_whole(request.field("seed"), 0, _LARGEST_SEED)
    if seed is None:
        return message_page("Bad seed", f"A seed is a whole number from 0 to {_LARGEST_SEED}.", 400), None
    try:
        task = find_task(request.field("task"))
    except UsageError as error:
        return message_page("Unknown task", str(error), 400), None
    if task.host != host:
        return message_page("Another site's task", f"{task.id} starts at http://{task.host}{PREFIX}", 400), None
    episodes.end(token)
    return redirect(PREFIX), episodes.start(task.task, seed)
