"""Addresses, right and wrong ones, of the last page of those of webarena-verified's tasks that ask for a page."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from webgym_cli.records.webarena import OR


@dataclass(frozen=True)
class Sought:
    """A page that a task of theirs asks for."""

    id: int
    wanted: tuple[str, ...]
    """Its address, in one or more forms."""

    @property
    def reference(self) -> str:
        """The address as our tasks state it."""
        return f" {OR} ".join(self.wanted)


def all_sought(tasks: list[dict[str, Any]], sites: dict[str, str]) -> list[Sought]:
    """Return the pages that tasks ask for by their address alone: by no pattern, header or ignored parameter."""
    return [sought for task in tasks if (sought := _sought(task, sites))]


def _sought(task: dict[str, Any], sites: dict[str, str]) -> Sought | None:
    rule, *events = task["eval"]
    result = (rule["expected"]["task_type"], rule["expected"]["status"])
    if result != ("navigate", "SUCCESS") or len(events) != 1 or set(events[0]) != {"evaluator", "expected"}:
        return None
    expected = events[0]["expected"]
    if set(expected) - {"url", "query_params"}:
        return None
    forms = expected["url"] if isinstance(expected["url"], list) else [expected["url"]]
    query = urlencode([(name, value) for name, values in expected.get("query_params", {}).items() for value in values])
    if any(form.startswith("^") for form in forms) or "%5E" in query:
        return None
    return Sought(task["task_id"], tuple(_address(form, query, sites) for form in forms))


def _address(form: str, query: str, sites: dict[str, str]) -> str:
    for placeholder, address in sites.items():
        form = form.replace(placeholder, address)
    return f"{form}?{query}" if query else form


def addresses(tasks: list[Sought]) -> Iterator[tuple[str, Sought, str]]:
    """Yield the name of a way to change an address, the task and the address, where it can be changed in that way."""
    for task in tasks:
        yield "as it is", task, task.wanted[0]
        for name, change in WAYS.items():
            if (address := change(urlsplit(task.wanted[0])).geturl()) != task.wanted[0]:
                yield name, task, address
        for other in tasks:
            if not set(other.wanted) & set(task.wanted):
                yield "another's", task, other.wanted[0]


Change = Callable[[SplitResult], SplitResult]


def _path(change: Callable[[str], str]) -> Change:
    return lambda parts: parts._replace(path=change(parts.path))


def _query(change: Callable[[list[tuple[str, str]]], list[tuple[str, str]]]) -> Change:
    return lambda parts: parts._replace(query=urlencode(change(parse_qsl(parts.query))))


def _next(path: str) -> str:
    """Return the path of the page with the next number, or of one with another name where there is no number."""
    end = "/" if path.endswith("/") else ""
    above, slash, last = path.removesuffix("/").rpartition("/")
    return f"{above}{slash}{int(last) + 1 if last.isdecimal() else f'{last}x'}{end}"


WAYS: dict[str, Change] = {
    "slash at the end": _path(lambda path: path.removesuffix("/") if path.endswith("/") else f"{path}/"),
    "other order": _query(lambda query: query[::-1]),
    "%20 for +": lambda parts: parts._replace(query=parts.query.replace("+", "%20")),
    "encoded letters": _path(lambda path: quote(path).replace("e", "%65", 1)),
    "host in capitals": lambda parts: parts._replace(netloc=parts.netloc.upper()),
    "path in capitals": _path(str.upper),
    "values in capitals": _query(lambda query: [(name, value.upper()) for name, value in query]),
    "empty parameter": _query(lambda query: [*query, ("sort", "")]),
    "one parameter more": _query(lambda query: [*query, ("sort", "name")]),
    "fragment": lambda parts: parts._replace(fragment="top"),
    "page below": _path(lambda path: f"{path.removesuffix('/')}/more"),
    "page above": _path(lambda path: path.removesuffix("/").rpartition("/")[0]),
    "other number": _path(_next),
    "other value": _query(lambda query: [(name, f"{value}x") for name, value in query]),
    "no parameters": lambda parts: parts._replace(query=""),
    "other site": lambda parts: parts._replace(netloc="elsewhere.test"),
    "other port": lambda parts: parts._replace(netloc=f"{parts.hostname}:4567"),
}
"""Changes an address in one way."""
