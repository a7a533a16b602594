"""The mail site's pages: login, folders, reading, writing, contacts."""

from __future__ import annotations

import re

from webgym_cli.environments.fixture_sites.mail import FOLDERS, MailState, Received, Sent, mailbox
from webgym_cli.environments.fixture_sites.web import (
    MissingPageError,
    SitePages,
    SiteRequest,
    SiteResponse,
    parse_whole,
    redirect,
    require,
)

_ON_A_PAGE = 14
_MOVES = {"archive": "archive", "delete": "trash", "inbox": "inbox"}
_EMAIL = re.compile(r"[^@\s,;]+@[^@\s,;]+\.[^@\s,;]+")
_LONGEST = 20_000
PAGES: SitePages[MailState] = SitePages("mail", mailbox)
PAGES.show("/login", "login")
PAGES.show("/contacts", "contacts")


def answer(state: MailState, request: SiteRequest) -> SiteResponse:
    """Answer a request to the mail site; without a login everything leads to the login page."""
    if not state.logged_in and request.path != "/login":
        return redirect("/login")
    return PAGES.answer(state, request)


def _find(state: MailState, number: str) -> Received | None:
    return mailbox(state.seed).find(parse_whole(number, 1, 999))


@PAGES.get("/")
def _home(state: MailState, request: SiteRequest) -> SiteResponse:
    return redirect("/folder/inbox")


@PAGES.post("/login")
def _login(state: MailState, request: SiteRequest) -> SiteResponse:
    box = mailbox(state.seed)
    user, password = request.field("user"), request.field("password")
    if (user, password) != (box.user, box.password):
        return PAGES.page("login", state, errors=["User name or password is wrong."], user=user)
    state.logged_in = True
    return redirect("/folder/inbox")


@PAGES.post("/logout")
def _logout(state: MailState, request: SiteRequest) -> SiteResponse:
    state.logged_in = False
    return redirect("/login")


@PAGES.get("/folder/{name}")
def _folder(state: MailState, request: SiteRequest) -> SiteResponse:
    name = request.parts["name"]
    if name == "sent":
        return PAGES.page("sent", state)
    if name not in FOLDERS:
        raise MissingPageError
    messages = [message for message in mailbox(state.seed).messages if state.folder(message.id) == name]
    return _listing(state, request, name.title(), messages, folder=name)


@PAGES.get("/search")
def _search(state: MailState, request: SiteRequest) -> SiteResponse:
    query = request.query.get("q", "").strip()
    words = query.casefold().split()
    messages = [
        message
        for message in mailbox(state.seed).messages
        if all(word in f"{message.sender} {message.subject} {message.body}".casefold() for word in words)
    ]
    return _listing(state, request, f"Search: {query}", messages, query=query)


def _listing(
    state: MailState, request: SiteRequest, title: str, messages: list[Received], folder: str = "", query: str = ""
) -> SiteResponse:
    pages = max(1, -(-len(messages) // _ON_A_PAGE))
    number = parse_whole(request.query.get("page", "1"), 1, pages) or 1
    return PAGES.page(
        "listing",
        state,
        title=title,
        folder=folder,
        query=query,
        path=request.path,
        total=len(messages),
        messages=messages[(number - 1) * _ON_A_PAGE : number * _ON_A_PAGE],
        number=number,
        pages=pages,
    )


@PAGES.post("/bulk")
def _bulk(state: MailState, request: SiteRequest) -> SiteResponse:
    """Do one thing with all ticked messages."""
    do = request.field("do")
    for message in filter(None, (_find(state, number) for number in request.form.get("id", ()))):
        if do in _MOVES:
            state.moved[message.id] = _MOVES[do]
        elif do in ("read", "unread"):
            state.opened[message.id] = do == "read"
    back = request.field("back")
    return redirect(back if back.startswith("/") and not back.startswith("//") else "/folder/inbox")


@PAGES.get("/message/{id}")
def _message(state: MailState, request: SiteRequest) -> SiteResponse:
    message = require(_find(state, request.parts["id"]))
    state.opened[message.id] = True
    return PAGES.page("message", state, message=message, folder=state.folder(message.id))


@PAGES.post("/message/{id}")
def _move(state: MailState, request: SiteRequest) -> SiteResponse:
    message = require(_find(state, request.parts["id"]))
    state.moved[message.id] = require(_MOVES.get(request.field("do")))
    return redirect("/folder/inbox")


@PAGES.get("/compose")
def _compose(state: MailState, request: SiteRequest) -> SiteResponse:
    reply = _find(state, request.query.get("reply", ""))
    forward = _find(state, request.query.get("forward", ""))
    given = {"to": request.query.get("to", ""), "subject": "", "body": ""}
    if reply is not None:
        given |= {"to": reply.email, "subject": f"Re: {reply.subject}"}
    elif forward is not None:
        given |= {"subject": f"Fwd: {forward.subject}"}
    return PAGES.page("compose", state, given=given, reply=reply, forward=forward)


@PAGES.post("/compose")
def _send(state: MailState, request: SiteRequest) -> SiteResponse:
    reply, forward = _find(state, request.field("reply")), _find(state, request.field("forward"))
    given = {name: request.field(name) for name in ("to", "subject", "body")}
    errors = []
    if not _EMAIL.fullmatch(given["to"]):
        errors.append("Please give one address like name@post.example.")
    if not given["subject"]:
        errors.append("Please give a subject.")
    if not given["body"] and forward is None:
        errors.append("The message is empty.")
    if len(given["body"]) > _LONGEST:
        errors.append(f"A message has {_LONGEST} characters at most.")
    if errors:
        return PAGES.page("compose", state, given=given, reply=reply, forward=forward, errors=errors)
    state.sent.append(Sent(**given, reply_to=reply.id if reply else None, forwards=forward.id if forward else None))
    return redirect(f"/sent/{len(state.sent) - 1}")


@PAGES.get("/sent/{number}")
def _show_sent(state: MailState, request: SiteRequest) -> SiteResponse:
    number = require(parse_whole(request.parts["number"], 0, len(state.sent) - 1))
    return PAGES.page("sent-message", state, sent=state.sent[number])
