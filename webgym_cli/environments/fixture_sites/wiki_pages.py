"""Pages of the wiki: articles, lists, search, editing, watchlist."""

from __future__ import annotations

from webgym_cli.environments.fixture_sites import wiki
from webgym_cli.environments.fixture_sites.web import (
    SitePages,
    SiteRequest,
    SiteResponse,
    list_errors,
    redirect,
    require,
)
from webgym_cli.environments.fixture_sites.wiki import LISTS, Article, Edit, WikiState, address, encyclopedia

_COLUMNS = {
    "city": ("Region", "Population"),
    "river": ("Length", "Source elevation"),
    "person": ("Born", "Occupation"),
    "region": ("Capital",),
}
_LONGEST = 200
PAGES: SitePages[WikiState] = SitePages(
    wiki, encyclopedia, WikiState, {"article": lambda state, title: encyclopedia(state.seed).find(title)}
)
PAGES.show("/", "home")
PAGES.show("/watchlist", "watchlist")
PAGES.show("/changes", "changes")
PAGES.show("/edit/{article}", "edit")


@PAGES.get("/list/{name}")
def _list(state: WikiState, request: SiteRequest) -> SiteResponse:
    kind = require(LISTS.get(request.parts["name"]))
    columns = _COLUMNS[kind]
    articles = encyclopedia(state.seed).of(kind)
    sort = request.query.get("sort", "")
    if sort in columns:
        articles.sort(key=lambda one: _sortable(dict(state.facts(one))[sort]))
    rows = [(one.title, [dict(state.facts(one))[column] for column in columns]) for one in articles]
    return PAGES.page("list", state, request, columns=columns, rows=rows)


def _sortable(value: str) -> tuple[float, str]:
    """Sort key: numbers by size, then texts alphabetically."""
    digits = value.split(" ")[0].replace(",", "")
    return (float(digits), value) if digits.isascii() and digits.isdigit() else (float("inf"), value)


@PAGES.get("/wiki/{title}")
def _article(state: WikiState, request: SiteRequest) -> SiteResponse:
    title = request.parts["title"]
    article = encyclopedia(state.seed).find(title)
    if article is None:
        return PAGES.page("search", state, request, 404, query=title.replace("_", " "), hits=[])
    return PAGES.page("article", state, request, article=article)


@PAGES.get("/search")
def _search(state: WikiState, request: SiteRequest) -> SiteResponse:
    query = request.query.get("q", "").strip()
    articles = encyclopedia(state.seed)
    exact = articles.find(query)
    if exact is not None:
        return redirect(address(exact.title))
    words = query.casefold().split()
    hits = [
        article
        for article in articles.articles
        if words and all(word in f"{article.title} {article.text}".casefold() for word in words)
    ]
    return PAGES.page("search", state, request, query=query, hits=hits)


@PAGES.post("/watch/{article}")
def _watch(state: WikiState, request: SiteRequest) -> SiteResponse:
    title = request.parts["article"].title
    if title in state.watched:
        state.watched.remove(title)
    else:
        state.watched.append(title)
    return redirect(address(title))


@PAGES.post("/edit/{article}")
def _save(state: WikiState, request: SiteRequest) -> SiteResponse:
    article: Article = request.parts["article"]
    before = state.facts(article)
    after = tuple((label, request.field(label)) for label, _ in before)
    summary = request.field("summary")
    errors = [f"{label} can't be empty." for label, value in after if not value]
    errors += [f"{label} has {_LONGEST} characters at most." for label, value in after if len(value) > _LONGEST]
    errors += list_errors(
        (summary, "Please describe your change in the summary."), (after != before, "Nothing was changed.")
    )
    if errors:
        return PAGES.page("edit", state, request, errors=errors)
    state.edits.append(Edit(article.title, before, after, summary[:_LONGEST]))
    return redirect(address(article.title))
