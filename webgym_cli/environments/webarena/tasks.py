"""Parser of WebArena's task configurations and WebRL's generated instructions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, ValidationError, field_validator

from webgym_cli.config.model import Settings
from webgym_cli.environments.webarena.evaluation import check_evaluation
from webgym_cli.errors import UsageError
from webgym_cli.records.base import Record, describe_invalid
from webgym_cli.records.task import SITE_ADDRESSES, Task
from webgym_cli.records.webarena import AND, OR, EvalType, Evaluation, UrlRule, WebArenaSite
from webgym_cli.tasks.convert import convert_records, digest_record
from webgym_cli.tasks.registry import BadTaskError, ConversionResult, TaskFormat
from webgym_cli.util.optional import when
from webgym_cli.util.text import map_texts
from webgym_cli.util.urls import is_address

# Site names in WebRL's generated instructions (`task` and `web`).
GENERATED = {
    "cms": WebArenaSite.SHOPPING_ADMIN,
    "oss": WebArenaSite.SHOPPING,
    "map": WebArenaSite.MAP,
    "reddit": WebArenaSite.REDDIT,
    "gitlab": WebArenaSite.GITLAB,
}

_WITH_LOGIN = frozenset({WebArenaSite.SHOPPING, WebArenaSite.SHOPPING_ADMIN, WebArenaSite.REDDIT, WebArenaSite.GITLAB})
_PLACEHOLDER = re.compile(r"__[A-Z]+(?:_[A-Z]+)*__")
# Host from which the benchmark's authors served GitLab, which occurs in some expected answers.
_SSH_HOST = re.compile(r"(?<=ssh://git@)[^/:\s]+(?=:)")


# webarena-verified reads the answer as JSON.
_ANSWER_FORM = (
    'Answer with one JSON object: {"task_type": "RETRIEVE", "MUTATE" or "NAVIGATE", "status": "SUCCESS", '
    '"NOT_FOUND_ERROR", "ACTION_NOT_ALLOWED_ERROR", "PERMISSION_DENIED_ERROR", "DATA_VALIDATION_ERROR" or '
    '"UNKNOWN_ERROR", "retrieved_data": a list of values for RETRIEVE, else null, "error_details": null or a text}'
)


# Types of the union `task_id`.
_BRANCHES = ("int", "str")


class _Geolocation(Record):
    latitude: float = Field(ge=-90, le=90)
    longitude: float = Field(ge=-180, le=180)
    accuracy: float = Field(default=0, ge=0)


class _Config(Record):
    """The validated fields of one configuration, with URLs filled in."""

    model_config = ConfigDict(extra="ignore")  # all fields are kept in the task's `extra`

    sites: tuple[WebArenaSite, ...] = Field(min_length=1)
    task_id: int | str | None = None
    intent: str
    start_url: str
    require_login: bool = False
    storage_state: str | None = None
    geolocation: _Geolocation | None = None
    require_reset: bool = False
    eval: Evaluation | None = None

    @field_validator("intent", "start_url")
    @classmethod
    def _is_not_blank(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("a text that is not empty is needed")
        return text.strip()

    @field_validator("task_id", mode="before")
    @classmethod
    def _is_a_number_or_a_text(cls, value: Any) -> Any:
        if isinstance(value, bool) or value == "":
            raise ValueError("a whole number or a text is needed")
        return value


def read_config(value: Mapping[str, Any], sites: Mapping[WebArenaSite, str]) -> Task:
    """Return the task of a configuration. Raises `BadTaskError` with the name of the field.

    `sites`: URL of each site, for the placeholders. Without a `task_id` the id is a hash of the content. `extra`
    contains all other fields, `start_urls` (one per tab), `site_addresses` (what was filled in), and `generated`:
    whether it has no evaluation of its own.
    """
    given = _from_generated(value) if "task" in value and "intent" not in value else dict(value)
    if is_verified(value):
        given = _from_verified(value)
    digest = digest_record(given)
    filled: dict[str, Any] = {
        name: map_texts(item, partial(_fill_addresses, sites, name)) for name, item in _add_login(given).items()
    }
    _take_ssh_host(filled, sites)
    _take_url_rule(filled)
    try:
        config = _Config.model_validate(filled)
        if config.eval is not None:
            check_evaluation(config.eval)
    except ValidationError as error:
        raise BadTaskError(describe_invalid(error, _BRANCHES)) from None
    except ValueError as error:
        raise BadTaskError(f"eval.{error}") from None
    tabs = _tabs(config)
    generated = config.eval is None or config.eval.is_dummy
    kept = {name: item for name, item in filled.items() if name not in ("task_id", "intent", "start_url")}
    return Task(
        id=digest if config.task_id is None else str(config.task_id),
        instruction=config.intent,
        start_url=tabs[0],
        environment="webarena",
        reference_answer=(config.eval and config.eval.reference_answer_raw_annotation.strip()) or None,
        extra={**kept, "start_urls": tabs, "generated": generated, **_list_addresses(sites, filled)},
    )


def _list_addresses(sites: Mapping[WebArenaSite, str], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was filled in, without which the task has the same key in all installations."""
    known = {WebArenaSite(site).placeholder: url.rstrip("/") for site, url in sites.items() if url}
    if (gitlab := known.get(WebArenaSite.GITLAB.placeholder)) and (host := urlsplit(gitlab).hostname):
        known["ssh://git@__GITLAB__:"] = f"ssh://git@{host}:"
    text = json.dumps(record)
    used = {name: address for name, address in known.items() if address in text}
    return when(used, {SITE_ADDRESSES: used})


def _take_url_rule(filled: dict[str, Any]) -> None:
    """Set the default of how URLs are compared."""
    # If a task has no rule, WebArena's code uses GOLD in PRED, and WebRL's uses EXACT for its 165 tasks.
    given = filled.get("eval")
    if "old_task_id" not in filled and isinstance(given, dict) and not given.get("url_note"):
        kinds = given.get("eval_types")
        if isinstance(kinds, list) and EvalType.URL_MATCH in kinds:
            filled["eval"] = {**given, "url_note": UrlRule.GOLD_IN_PRED.value}


def is_verified(value: Mapping[str, Any]) -> bool:
    """Whether a record is a task of webarena-verified."""
    return "start_urls" in value and isinstance(value.get("eval"), list)


def _from_verified(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task of webarena-verified as a configuration without an evaluation: its package scores the requests.

    `verified` is the configuration with which the package maps addresses to sites.
    """
    if not isinstance(starts := value["start_urls"], list) or not isinstance(value.get("sites"), list):
        raise BadTaskError("start_urls: a list of addresses and a list of sites are needed")
    if not isinstance(intent := value.get("intent"), str) or not intent.strip():
        raise BadTaskError("intent: a text that is not empty is needed")
    placeholders = [f"__{site}__".upper() for site in value["sites"]]
    return {name: item for name, item in value.items() if name != "eval"} | {
        "start_url": AND.join(map(str, starts)),
        "intent": f"{intent}\n\n{_ANSWER_FORM}",
        "verified": {"environments": {name: {"urls": [name]} for name in placeholders}},
    }


def evaluation_of(task: Task) -> Evaluation | None:
    """Return a task's evaluation; None for a generated task (scored by a reward model). Raises `BadTaskError`."""
    given = task.extra.get("eval")
    if given is None or task.extra.get("generated"):
        return None
    try:
        evaluation = Evaluation.model_validate(given)
        check_evaluation(evaluation)
    except ValidationError as error:
        raise BadTaskError(f"eval.{describe_invalid(error, _BRANCHES)}") from None
    except ValueError as error:
        raise BadTaskError(f"eval.{error}") from None
    return None if evaluation.is_dummy else evaluation


def _from_generated(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a generated instruction, a `task` on a `web`, as a configuration that starts on the site's first page."""
    site = GENERATED.get(str(value.get("web")))
    if site is None:
        raise BadTaskError(f"web: {value.get('web')!r} is none of {', '.join(GENERATED)}")
    kept = {name: item for name, item in value.items() if name not in ("task", "web")}
    login = when(site not in _WITH_LOGIN, {"require_login": False, "storage_state": None})
    return {
        **_add_login({"sites": [site.value], **login}),
        "start_url": site.placeholder,
        "intent": value["task"],
    } | kept


def _add_login(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a configuration with the login of its sites that have accounts, if it says nothing of logins.

    The records of WebRL's training tasks have only intent, sites and start URL.
    """
    if "require_login" in given or "storage_state" in given or not isinstance(given.get("sites"), list):
        return given
    known = [str(site) for site in _WITH_LOGIN if site in given["sites"]]
    if not known:
        return given
    return {**given, "require_login": True, "storage_state": f"./.auth/{'.'.join(sorted(known))}_state.json"}


def _fill_addresses(sites: Mapping[WebArenaSite, str], place: str, text: str) -> str:
    return _PLACEHOLDER.sub(lambda match: _address(match[0], sites, place), text)


def _address(placeholder: str, sites: Mapping[WebArenaSite, str], place: str) -> str:
    site = next((site for site in WebArenaSite if site.placeholder == placeholder), None)
    if site is None:
        return placeholder  # the word may occur in a text; where a URL is required, it is refused later
    if not sites.get(site):
        raise BadTaskError(f"{place}: the address of {placeholder} is not known", f"--site {site}=http://HOST:PORT")
    return sites[site].rstrip("/")


def _take_ssh_host(filled: dict[str, Any], sites: Mapping[WebArenaSite, str]) -> None:
    """Replace the authors' GitLab host in expected answers."""
    evaluation, gitlab = filled.get("eval"), sites.get(WebArenaSite.GITLAB)
    if isinstance(evaluation, dict) and gitlab and (host := urlsplit(gitlab).hostname):
        answers = evaluation.get("reference_answers")
        filled["eval"] = {
            **evaluation,
            "reference_answers": map_texts(answers, lambda text: _SSH_HOST.sub(host, text)),
        }


def _tabs(config: _Config) -> list[str]:
    """Return the URL of each tab. Raises `BadTaskError` for an invalid URL, also of an expected one."""
    tabs = [tab.strip() for tab in config.start_url.split(AND)]
    wanted = config.eval and EvalType.URL_MATCH in config.eval.eval_types and config.eval.reference_url
    for place, addresses in (("start_url", tabs), ("eval.reference_url", wanted.split(OR) if wanted else [])):
        for address in addresses:
            if not is_address(address.strip()):
                raise BadTaskError(
                    f"{place}: {address.strip()!r} is no address: a placeholder or http(s)://... is needed"
                )
    return tabs


def convert_configurations(path: Path, settings: Settings, sites: Sequence[str]) -> ConversionResult:
    """Return the tasks of WebArena's records; `sites` (`NAME=URL`) override the configured URLs.

    Raises `UsageError` for an invalid URL, and as `convert_webarena`.
    """
    known = {site: settings.sites[site].url for site in WebArenaSite if site in settings.sites}
    return convert_webarena(path, {**known, **_read_addresses(sites)})


def convert_webarena(path: Path, sites: Mapping[WebArenaSite, str]) -> ConversionResult:
    """Return the tasks of a file or folder of files, also of webarena-verified. Raises `UsageError`."""
    return convert_records(path, lambda value, _: read_config(value, sites))


def _read_addresses(given: Sequence[str]) -> dict[WebArenaSite, str]:
    addresses: dict[WebArenaSite, str] = {}
    for text in given:
        name, _, url = text.partition("=")
        if name not in list(WebArenaSite) or not url.startswith(("http://", "https://")):
            hint = f"--site shopping=http://host:7770; there are: {', '.join(WebArenaSite)}"
            raise UsageError(f"--site: {text!r} is no site with its address", hint=hint)
        addresses[WebArenaSite(name)] = url
    return addresses


WEBARENA = TaskFormat(convert_configurations, frozenset({"intent", "eval"}))
