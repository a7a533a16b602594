"""Start of an episode on a site: what its reset or its set-up function prepared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError, field_validator

from webgym_cli.errors import BoundaryError
from webgym_cli.records.base import Record, describe_invalid
from webgym_cli.records.failure import FailureKind


class EpisodeStart(Record):
    """Where and how an episode starts. It is never stored: cookies grant access."""

    start_url: str = ""
    """Address of the first page, or a path on the site; empty: the task's."""
    cookies: tuple[dict[str, Any], ...] = ()
    """Cookies in Playwright's form; one without `url` or `domain` is for the site."""
    storage_state: dict[str, Any] | None = None
    """Playwright's storage state in place of the role's login; None: the login of the task's role."""
    state: Any = None
    """Value that the task's check gets, such as the name of a tenant."""

    @field_validator("start_url")
    @classmethod
    def _can_be_opened(cls, url: str) -> str:
        if urlsplit(url).scheme not in ("", "http", "https"):  # raises `ValueError` too, as for an open bracket
            raise ValueError(f"{url!r} is neither a path nor an http(s) address")
        return url

    @field_validator("cookies")
    @classmethod
    def _have_name_and_value(cls, cookies: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for cookie in cookies:
            for key in ("name", "value"):
                if not isinstance(cookie.get(key), str):
                    raise ValueError(f"{key} should be a text, not {cookie.get(key)!r}")
        return cookies

    def to_storage_state(self) -> dict[str, Any]:
        """Return cookies and storage as Playwright's storage state, for a browser that is not webgym's."""
        state, host = self.storage_state or {}, urlsplit(self.start_url).hostname
        defaults = {"domain": host, "path": "/", "expires": -1, "httpOnly": False, "secure": False, "sameSite": "Lax"}
        cookies = []
        for cookie in self.cookies:
            own = {name: value for name, value in cookie.items() if name != "url"}
            if "url" in cookie:  # as Playwright reads it
                url = urlsplit(str(cookie["url"]))
                path, secure = f"{url.path.rpartition('/')[0]}/", url.scheme == "https"
                own |= {"domain": url.hostname, "path": path, "secure": secure}
            cookies.append({**defaults, **own})
        return {"origins": [], **state, "cookies": [*state.get("cookies", ()), *cookies]}

    def cookies_for(self, url: str) -> tuple[dict[str, Any], ...]:
        """Return the cookies in Playwright's form, those without a place for the site of a URL."""
        cookies: list[dict[str, Any]] = []
        for cookie in self.cookies:
            if "domain" in cookie or ("path" in cookie and "url" not in cookie):
                cookies.append({"domain": urlsplit(url).hostname, "path": "/", **cookie})
            else:
                cookies.append({"url": url, **cookie})
        return tuple(cookies)

    def updated_by(self, other: EpisodeStart) -> EpisodeStart:
        """Return this start with what another one sets; cookies of both are set."""
        given = {name: getattr(other, name) for name in ("start_url", "storage_state", "state")}
        values = {name: value for name, value in given.items() if value not in ("", None)}
        return self.model_copy(update={**values, "cookies": (*self.cookies, *other.cookies)})


def parse_start(answer: object, origin: str) -> EpisodeStart:
    """Return the start that a reset or a set-up function answered with; None answers nothing.

    `origin`: who answered, for messages. Raises `BoundaryError` (`environment_error`) for anything else.
    """
    if answer is None or isinstance(answer, EpisodeStart):
        return answer or EpisodeStart()
    if not isinstance(answer, Mapping):
        raise _refuse(origin, f"{type(answer).__name__} is no mapping of {', '.join(EpisodeStart.model_fields)}")
    try:
        return EpisodeStart.model_validate(dict(answer))
    except ValidationError as error:
        raise _refuse(origin, describe_invalid(error)) from None


def _refuse(origin: str, reason: str) -> BoundaryError:
    return BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"{origin} answered with no start of an episode: {reason}")
