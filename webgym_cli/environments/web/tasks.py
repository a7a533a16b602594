"""Validation of web tasks: a URL that a browser can open, and an instruction."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from webgym_cli.records.task import Task
from webgym_cli.tasks.registry import BadTaskError, TaskFields
from webgym_cli.util.text import truncate

# Matches a scheme, but not a host with its port (`localhost:8080`).
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?!\d+(?:[/?#]|$))", re.IGNORECASE)
_PLAIN = re.compile(r"https?://[a-z0-9-]+(?:\.[a-z0-9-]+)+(?:[/?#]|$)")
_NO_HOST = re.compile(r"[\s\\<>\"]")


def is_web_record(record: TaskFields) -> bool:
    """Whether a record without an environment is a web task: it has a URL or a field of WebGym's."""
    url = record.fields.get("start_url")
    is_address = isinstance(url, str) and "://" in url
    named = bool({"start_url", "instruction"} & record.spelling.keys() or record.fields.get("site"))
    return is_address or named


def complete_address(record: TaskFields) -> None:
    """Complete a bare domain with https://. Raises `BadTaskError` for an invalid URL."""
    name = record.spelling.get("start_url", "website" if "instruction" in record.spelling else "start_url")
    url = record.fields.get("start_url", "")
    if not isinstance(url, str):
        return  # validation reports the expected type
    url = url.strip()
    if record.fields.get("site") and "://" not in url:
        record.fields["start_url"] = f"/{url.lstrip('/')}"
        return
    if not url:
        raise BadTaskError(f"{name}: a task on the web needs the address that it starts from")
    if not url.lower().startswith(("http://", "https://")):
        if _SCHEME.match(url):
            raise BadTaskError(f"{name}: {shorten(url)} is neither http nor https")
        url = "https://" + url.removeprefix("//")
    if not _has_host(url):
        raise BadTaskError(f"{name}: {shorten(url)} is not the address of a web page, nor the page of a `site`")
    record.fields["start_url"] = url


def require_instruction(task: Task, record: TaskFields) -> None:
    """Raise `BadTaskError` for a task without an instruction."""
    if not task.instruction.strip():
        name = record.spelling.get("instruction", "task_name" if record.spelling else "instruction")
        raise BadTaskError(f"{name}: a task on the web needs an instruction")


def shorten(text: str) -> str:
    """Return a quoted text, truncated to 80 characters."""
    return repr(truncate(text, 80))


def _has_host(url: str) -> bool:
    if _PLAIN.match(url):  # fast path for nearly all URLs, five times as fast as parsing
        return True
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and not _NO_HOST.search(parts.netloc)
    except ValueError:  # an invalid port or IPv6 address
        return False
