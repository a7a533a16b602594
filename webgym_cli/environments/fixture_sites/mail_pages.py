"""Pages of the mail site: login, folders, reading, writing, contacts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from aiohttp import web

from webgym_cli.environments.fixture_sites import mail
from webgym_cli.environments.fixture_sites.mail import FOLDERS, MailState, Received, Sent, mailbox
from webgym_cli.environments.fixture_sites.web import (
    SitePages,
    SiteRequest,
    list_errors,
    parse_whole,
    redirect,
    require,
    take_page,
)

_ON_A_PAGE = 14
_MOVES = {"archive": "archive", "delete": "trash", "inbox": "inbox"}
_EMAIL = re.compile(r"[^@\s,;]+@[^@\s,;]+\.[^@\s,;]+")
_LONGEST = 20_000


def _find(state: MailState, number: str) -> Received | None:
    return mailbox(state.seed).find(parse_whole(number, 1, 999))


def _find_sent(state: MailState, number: str) -> Sent:
    return state.sent[require(parse_whole(number, 0, len(state.sent) - 1))]


class _MailPages(SitePages):
    def answer(self, state: MailState, request: SiteRequest) -> web.Response:
        """Return the response to a request; without a login always the login page."""
        if not state.logged_in and request.path != "/login":
            return redirect("/login")
        return super().answer(state, request)


PAGES = _MailPages(
    mail,
    mailbox,
    MailState,
    {"message": _find, "sent": _find_sent, "folder": lambda state, name: name if name in FOLDERS else None},
)
PAGES.show("/login", "login")
PAGES.show("/contacts", "contacts")
PAGES.show("/folder/sent", "sent")
PAGES.show("/sent/{sent}", "sent-message")


@PAGES.get("/")
def _home(state: MailState, request: SiteRequest) -> web.Response:
    return redirect("/folder/inbox")


@PAGES.post("/login")
def _login(state: MailState, request: SiteRequest) -> web.Response:
    box = mailbox(state.seed)
    if (request.field("user"), request.field("password")) != (box.user, box.password):
        return PAGES.page("login", state, request, errors=["User name or password is wrong."])
    state.logged_in = True
    return redirect("/folder/inbox")


@PAGES.post("/logout")
def _logout(state: MailState, request: SiteRequest) -> web.Response:
    state.logged_in = False
    return redirect("/login")


@PAGES.get("/folder/{folder}")
def _folder(state: MailState, request: SiteRequest) -> web.Response:
    name = request.parts["folder"]
    messages = [message for message in mailbox(state.seed).messages if state.folder(message.id) == name]
    return _listing(state, request, name.title(), messages)


@PAGES.get("/search")
def _search(state: MailState, request: SiteRequest) -> web.Response:
    query = request.query.get("q", "").strip()
    words = query.casefold().split()
    messages = [
        message
        for message in mailbox(state.seed).messages
        if all(word in f"{message.sender} {message.subject} {message.body}".casefold() for word in words)
    ]
    return _listing(state, request, f"Search: {query}", messages, query)


def _listing(
    state: MailState, request: SiteRequest, title: str, messages: list[Received], query: str = ""
) -> web.Response:
    shown, number, pages = take_page(messages, request, _ON_A_PAGE)
    total = len(messages)
    return PAGES.page(
        "listing", state, request, title=title, query=query, total=total, messages=shown, number=number, pages=pages
    )


@PAGES.post("/bulk")
def _bulk(state: MailState, request: SiteRequest) -> web.Response:
    do = request.field("do")
    for message in filter(None, (_find(state, number) for number in request.form.get("id", ()))):
        if do in _MOVES:
            state.moved[message.id] = _MOVES[do]
        elif do in ("read", "unread"):
            state.opened[message.id] = do == "read"
    back = request.field("back")
    return redirect(back if back.startswith("/") and not back.startswith("//") else "/folder/inbox")


@PAGES.get("/message/{message}")
def _message(state: MailState, request: SiteRequest) -> web.Response:
    state.opened[request.parts["message"].id] = True
    return PAGES.page("message", state, request)


@PAGES.post("/message/{message}")
def _move(state: MailState, request: SiteRequest) -> web.Response:
    state.moved[request.parts["message"].id] = require(_MOVES.get(request.field("do")))
    return redirect("/folder/inbox")


def _find_quoted(state: MailState, given: Callable[[str, str], str]) -> dict[str, Any]:
    """Return the message to reply to (`reply`), and the message to forward (`forward`)."""
    return {name: _find(state, given(name, "")) for name in ("reply", "forward")}


@PAGES.get("/compose")
def _compose(state: MailState, request: SiteRequest) -> web.Response:
    return PAGES.page("compose", state, request, **_find_quoted(state, request.query.get))


@PAGES.post("/compose")
def _send(state: MailState, request: SiteRequest) -> web.Response:
    quoted = _find_quoted(state, request.field)
    to, subject, body = map(request.field, ("to", "subject", "body"))
    errors = list_errors(
        (_EMAIL.fullmatch(to), "Please give one address like name@post.example."),
        (subject, "Please give a subject."),
        (body or quoted["forward"], "The message is empty."),
        (len(body) <= _LONGEST, f"A message has {_LONGEST} characters at most."),
    )
    if errors:
        return PAGES.page("compose", state, request, errors=errors, **quoted)
    reply, forward = (message.id if message else None for message in quoted.values())
    state.sent.append(Sent(to, subject, body, reply_to=reply, forwards=forward))
    return redirect(f"/sent/{len(state.sent) - 1}")
