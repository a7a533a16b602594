"""The wiki's pages: articles, lists, search, editing, watchlist."""

from __future__ import annotations

from urllib.parse import quote

from webgym_cli.environments.fixture_sites.web import (
    SitePages,
    SiteRequest,
    SiteResponse,
    redirect,
    require,
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


def _address(title: str, page: str = "wiki") -> str:
    return f"/{page}/" + quote(title.replace(" ", "_"))


PAGES: SitePages[WikiState] = SitePages("wiki", encyclopedia, lists=tuple(_LISTS), address=_address)
PAGES.show("/", "home")
PAGES.show("/watchlist", "watchlist")
PAGES.show("/changes", "changes")
answer = PAGES.answer


def _find(state: WikiState, request: SiteRequest) -> Article:
    return require(encyclopedia(state.seed).find(request.parts["title"]))


@PAGES.get("/list/{name}")
def _list(state: WikiState, request: SiteRequest) -> SiteResponse:
    kind = require(_LISTS.get(request.parts["name"]))
    columns = _COLUMNS[kind]
    articles = encyclopedia(state.seed).of(kind)
    sort = request.query.get("sort", "")
    if sort in columns:
        articles.sort(key=lambda one: _sortable(dict(state.facts(one))[sort]))
    rows = [(one.title, [dict(state.facts(one))[column] for column in columns]) for one in articles]
    return PAGES.page("list", state, name=request.parts["name"], columns=columns, rows=rows)


def _sortable(value: str) -> tuple[float, str]:
    """Order numbers by size before texts by letters."""
    digits = value.split(" ")[0].replace(",", "")
    return (float(digits), value) if digits.isascii() and digits.isdigit() else (float("inf"), value)


@PAGES.get("/wiki/{title}")
def _article(state: WikiState, request: SiteRequest) -> SiteResponse:
    article = encyclopedia(state.seed).find(request.parts["title"])
    if article is None:
        return PAGES.page("search", state, 404, query=request.parts["title"].replace("_", " "), hits=[])
    return PAGES.page("article", state, article=article)


@PAGES.get("/search")
def _search(state: WikiState, request: SiteRequest) -> SiteResponse:
    query = request.query.get("q", "").strip()
    articles = encyclopedia(state.seed)
    exact = articles.find(query)
    if exact is not None:
        return redirect(_address(exact.title))
    words = query.casefold().split()
    hits = [
        article
        for article in articles.articles
        if words and all(word in f"{article.title} {article.text}".casefold() for word in words)
    ]
    return PAGES.page("search", state, query=query, hits=hits)


@PAGES.post("/watch/{title}")
def _watch(state: WikiState, request: SiteRequest) -> SiteResponse:
    title = _find(state, request).title
    if title in state.watched:
        state.watched.remove(title)
    else:
        state.watched.append(title)
    return redirect(_address(title))


@PAGES.get("/edit/{title}")
def _edit_form(state: WikiState, request: SiteRequest) -> SiteResponse:
    article = _find(state, request)
    return PAGES.page("edit", state, article=article, rows=state.facts(article), summary="")


@PAGES.post("/edit/{title}")
def _save(state: WikiState, request: SiteRequest) -> SiteResponse:
    article = _find(state, request)
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
        return PAGES.page("edit", state, article=article, rows=after, summary=summary, errors=errors)
    state.edits.append(Edit(article.title, before, after, summary[:_LONGEST]))
    return redirect(_address(article.title))
