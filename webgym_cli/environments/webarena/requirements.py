"""Requirements of WebArena's evaluations, checked before the first episode."""

from __future__ import annotations

from collections.abc import Sequence

from webgym_cli.config.model import Settings
from webgym_cli.config.model_servers import find_model_server
from webgym_cli.environments.sites.accounts import Login, find_account, find_site, read_password
from webgym_cli.environments.sites.site_scheduler import require_sites
from webgym_cli.environments.webarena.locators import HelperCall, HelperName, parse_location
from webgym_cli.environments.webarena.tasks import evaluation_of
from webgym_cli.environments.webarena.text_match import needs_judge
from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.records.task import Task
from webgym_cli.records.webarena import Evaluation, WebArenaSite
from webgym_cli.tasks.registry import BadTaskError

_OF_SHOP = frozenset({HelperName.LATEST_ORDER, HelperName.REVIEW_AUTHOR, HelperName.REVIEW_RATING})
_OF_ADMIN = _OF_SHOP - {HelperName.LATEST_ORDER}


def check_settings(settings: Settings, tasks: Sequence[Task]) -> None:
    """Raise `WebGymError` if tasks lack a judge, site, account, or have an unsupported evaluation."""
    for task in tasks:
        try:
            evaluation = evaluation_of(task)
        except BadTaskError as error:
            raise UsageError(f"task {task.id}: {error}", hint="webgym tasks check FILE") from error
        if evaluation is None:
            continue
        server = find_model_server(settings.judge.base_url)
        if needs_judge(evaluation) and (not settings.judge.base_url or (server and server.by_rules)):
            raise SettingsError(
                f"task {task.id}: its evaluation has a fuzzy_match, which only a model can judge",
                hint="-s judge.base_url=http://HOST:PORT/v1 -s judge.model=NAME",
            )
        _require_shop(settings, task, _helpers(evaluation))
    require_sites(settings, tasks)


def _require_shop(settings: Settings, task: Task, helpers: set[HelperName]) -> None:
    if helpers & _OF_SHOP:
        find_site(settings, WebArenaSite.SHOPPING, f"task {task.id}: its evaluation asks the shop: ")
    if helpers & _OF_ADMIN:
        admin = Login(WebArenaSite.SHOPPING_ADMIN)
        read_password(admin, find_account(settings, admin)[1])


def _helpers(evaluation: Evaluation) -> set[HelperName]:
    places = [parse_location(target) for target in evaluation.targets]
    return {part.name for place in places for part in (place.url, place.locator) if isinstance(part, HelperCall)}
