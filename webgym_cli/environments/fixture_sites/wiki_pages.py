"""The wiki's pages: articles, lists, search, editing, watchlist."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from webgym_cli.environments.fixture_sites.web import (
    Route,
    SiteRequest,
    SiteResponse,
    dispatch,
    not_found_page,
    redirect,
    render_page,
)
from webgym_cli.environments.fixture_sites.wiki import Article, Edit, WikiState, encyclopedia

_LISTS = {"cities": "city", "rivers": "river", "people": "person", "regions": "region"}
_COLUMNS = {
    "city": ("Region", "Population"),
    "river": ("Length", "Source elevation"),
    "person": ("Born", "Occupation"),
    "region": ("Capital",),
}
_LONGEST = 200


def answer(state: WikiState, request: SiteRequest) -> SiteResponse:
    """Answer a request to the wiki."""
    return dispatch(_ROUTES, state, request)


def _wiki(template: str, state: WikiState, status: int = 200, /, **values: Any) -> SiteResponse:
    values = {"query": "", **values}
    country = encyclopedia(state.seed).country
    return render_page(f"wiki/{template}.html", status, country=country, lists=tuple(_LISTS), **values)


def _address(title: str) -> str:
    return "/wiki/" + quote(title.replace(" ", "_"))


def _links(state: WikiState, value: str) -> list[tuple[str, str]]:
    """Return the parts of a value with their addresses; an empty address where there is no such article."""
    found = encyclopedia(state.seed)
    return [(part, _address(part) if found.find(part) else "") for part in value.split(", ")]


def _home(state: WikiState, request: SiteRequest) -> SiteResponse:
    found = encyclopedia(state.seed)
    regions = [(one.title, _address(one.title)) for one in found.of("region")]
    return _wiki("home", state, count=len(found.articles), regions=regions)


def _list(state: WikiState, request: SiteRequest) -> SiteResponse:
    kind = _LISTS.get(request.parts["name"])
    if kind is None:
        return not_found_page()
    columns = _COLUMNS[kind]
    articles = encyclopedia(state.seed).of(kind)
    sort = request.query.get("sort", "")
    if sort in columns:
        articles.sort(key=lambda one: _sortable(dict(state.facts(one))[sort]))
    rows = [
        (one.title, _address(one.title), [dict(state.facts(one))[column] for column in columns]) for one in articles
    ]
    return _wiki("list", state, name=request.parts["name"], columns=columns, rows=rows)


def _sortable(value: str) -> tuple[float, str]:
    """Order numbers by size before texts by letters."""
    digits = value.split(" ")[0].replace(",", "")
    return (float(digits), value) if digits.isascii() and digits.isdigit() else (float("inf"), value)


def _article(state: WikiState, request: SiteRequest) -> SiteResponse:
    article = encyclopedia(state.seed).find(request.parts["title"])
    if article is None:
        return _wiki("search", state, 404, query=request.parts["title"].replace("_", " "), hits=[])
    return _wiki(
        "article",
        state,
        article=article,
        address=_address(article.title),
        edit="/edit/" + quote(article.title.replace(" ", "_")),
        rows=[(label, _links(state, value)) for label, value in state.facts(article)],
        paragraphs=article.text.split("\n"),
        watched=article.title in state.watched,
        edited=sum(edit.title == article.title for edit in state.edits),
    )


def _search(state: WikiState, request: SiteRequest) -> SiteResponse:
    query = request.query.get("q", "").strip()
    found = encyclopedia(state.seed)
    exact = found.find(query)
    if exact is not None:
        return redirect(_address(exact.title))
    words = query.casefold().split()
    hits = [
        (article.title, _address(article.title), article.text.split("\n")[0])
        for article in found.articles
        if words and all(word in f"{article.title} {article.text}".casefold() for word in words)
    ]
    return _wiki("search", state, query=query, hits=hits)


def _watch(state: WikiState, request: SiteRequest) -> SiteResponse:
    article = encyclopedia(state.seed).find(request.parts["title"])
    if article is None:
        return not_found_page()
    if article.title in state.watched:
        state.watched.remove(article.title)
    else:
        state.watched.append(article.title)
    return redirect(_address(article.title))


def _watchlist(state: WikiState, request: SiteRequest) -> SiteResponse:
    return _wiki("watchlist", state, watched=[(title, _address(title)) for title in state.watched])


def _edit_form(state: WikiState, request: SiteRequest) -> SiteResponse:
    article = encyclopedia(state.seed).find(request.parts["title"])
    return not_found_page() if article is None else _form(state, article, state.facts(article), "", [])


def _form(
    state: WikiState, article: Article, rows: tuple[tuple[str, str], ...], summary: str, errors: list[str]
) -> SiteResponse:
    status = 422 if errors else 200
    return _wiki("edit", state, status, article=article, rows=rows, summary=summary, errors=errors)


def _save(state: WikiState, request: SiteRequest) -> SiteResponse:
    article = encyclopedia(state.seed).find(request.parts["title"])
    if article is None:
        return not_found_page()
    before = state.facts(article)
    after = tuple((label, request.field(label)) for label, _ in before)
    summary = request.field("summary")
    errors = [f"{label} can't be empty." for label, value in after if not value]
    errors += [f"{label} has {_LONGEST} characters at most." for label, value in after if len(value) > _LONGEST]
    if not summary:
        errors.append("Please describe your change in the summary.")
    if after == before:
        errors.append("Nothing was changed.")
    if errors:
        return _form(state, article, after, summary, errors)
    state.edits.append(Edit(article.title, before, after, summary[:_LONGEST]))
    return redirect(_address(article.title))


def _changes(state: WikiState, request: SiteRequest) -> SiteResponse:
    return _wiki("changes", state, edits=[(edit, _address(edit.title)) for edit in reversed(state.edits)])


_ROUTES: tuple[Route[WikiState], ...] = (
    ("GET", "/", _home),
    ("GET", "/list/{name}", _list),
    ("GET", "/wiki/{title}", _article),
    ("GET", "/search", _search),
    ("POST", "/watch/{title}", _watch),
    ("GET", "/watchlist", _watchlist),
    ("GET", "/edit/{title}", _edit_form),
    ("POST", "/edit/{title}", _save),
    ("GET", "/changes", _changes),
)
