"""The mail site's pages: login, folders, reading, writing, contacts."""

from __future__ import annotations

import re
from typing import Any

from webgym_cli.environments.fixture_sites.mail import FOLDERS, MailState, Received, Sent, mailbox
from webgym_cli.environments.fixture_sites.web import (
    Route,
    SiteRequest,
    SiteResponse,
    dispatch,
    not_found_page,
    parse_whole,
    redirect,
    render_page,
)

_ON_A_PAGE = 14
_MOVES = {"archive": "archive", "delete": "trash", "inbox": "inbox"}
_EMAIL = re.compile(r"[^@\s,;]+@[^@\s,;]+\.[^@\s,;]+")
_LONGEST = 20_000


def answer(state: MailState, request: SiteRequest) -> SiteResponse:
    """Answer a request to the mail site; without a login everything leads to the login page."""
    if not state.logged_in and request.path != "/login":
        return redirect("/login")
    return dispatch(_ROUTES, state, request)


def _mail(template: str, state: MailState, status: int = 200, /, **values: Any) -> SiteResponse:
    box = mailbox(state.seed)
    unread = sum(state.folder(one.id) == "inbox" and state.is_unread(one.id) for one in box.messages)
    values = {"query": "", "folder": "", **values}
    return render_page(f"mail/{template}.html", status, user=box.user, unread=unread, **values)


def _login_form(state: MailState, request: SiteRequest) -> SiteResponse:
    return render_page("mail/login.html", error="", user="")


def _login(state: MailState, request: SiteRequest) -> SiteResponse:
    box = mailbox(state.seed)
    user, password = request.field("user"), request.field("password")
    if (user, password) != (box.user, box.password):
        return render_page("mail/login.html", 422, error="User name or password is wrong.", user=user)
    state.logged_in = True
    return redirect("/folder/inbox")


def _logout(state: MailState, request: SiteRequest) -> SiteResponse:
    state.logged_in = False
    return redirect("/login")


def _home(state: MailState, request: SiteRequest) -> SiteResponse:
    return redirect("/folder/inbox")


def _folder(state: MailState, request: SiteRequest) -> SiteResponse:
    name = request.parts["name"]
    if name == "sent":
        return _mail("sent", state, folder=name, sent=list(enumerate(state.sent))[::-1])
    if name not in FOLDERS:
        return not_found_page()
    found = [message for message in mailbox(state.seed).messages if state.folder(message.id) == name]
    return _listing(state, request, name.title(), found, folder=name)


def _search(state: MailState, request: SiteRequest) -> SiteResponse:
    query = request.query.get("q", "").strip()
    words = query.casefold().split()
    found = [
        message
        for message in mailbox(state.seed).messages
        if all(word in f"{message.sender} {message.subject} {message.body}".casefold() for word in words)
    ]
    return _listing(state, request, f"Search: {query}", found, query=query)


def _listing(
    state: MailState, request: SiteRequest, title: str, found: list[Received], folder: str = "", query: str = ""
) -> SiteResponse:
    pages = max(1, -(-len(found) // _ON_A_PAGE))
    number = parse_whole(request.query.get("page", "1"), 1, pages) or 1
    shown = found[(number - 1) * _ON_A_PAGE : number * _ON_A_PAGE]
    return _mail(
        "listing",
        state,
        title=title,
        folder=folder,
        query=query,
        path=request.path,
        total=len(found),
        rows=[(message, state.is_unread(message.id), state.folder(message.id)) for message in shown],
        number=number,
        pages=pages,
    )


def _bulk(state: MailState, request: SiteRequest) -> SiteResponse:
    """Do one thing with all ticked messages."""
    box, do = mailbox(state.seed), request.field("do")
    chosen = [box.find(parse_whole(text, 1, 999)) for text in request.form.get("id", ())]
    for message in chosen:
        if message is not None and do in _MOVES:
            state.moved[message.id] = _MOVES[do]
        elif message is not None and do in ("read", "unread"):
            state.opened[message.id] = do == "read"
    back = request.field("back")
    return redirect(back if back.startswith("/") and not back.startswith("//") else "/folder/inbox")


def _message(state: MailState, request: SiteRequest) -> SiteResponse:
    message = mailbox(state.seed).find(parse_whole(request.parts["id"], 1, 999))
    if message is None:
        return not_found_page()
    state.opened[message.id] = True
    return _mail("message", state, message=message, folder=state.folder(message.id))


def _move(state: MailState, request: SiteRequest) -> SiteResponse:
    message = mailbox(state.seed).find(parse_whole(request.parts["id"], 1, 999))
    folder = _MOVES.get(request.field("do"))
    if message is None or folder is None:
        return not_found_page()
    state.moved[message.id] = folder
    return redirect("/folder/inbox")


def _compose(state: MailState, request: SiteRequest) -> SiteResponse:
    box = mailbox(state.seed)
    reply = box.find(parse_whole(request.query.get("reply", ""), 1, 999))
    forward = box.find(parse_whole(request.query.get("forward", ""), 1, 999))
    given = {"to": request.query.get("to", ""), "subject": "", "body": ""}
    if reply is not None:
        given |= {"to": reply.email, "subject": f"Re: {reply.subject}"}
    elif forward is not None:
        given |= {"subject": f"Fwd: {forward.subject}"}
    return _mail("compose", state, given=given, reply=reply, forward=forward, errors=[])


def _send(state: MailState, request: SiteRequest) -> SiteResponse:
    box = mailbox(state.seed)
    reply = box.find(parse_whole(request.field("reply"), 1, 999))
    forward = box.find(parse_whole(request.field("forward"), 1, 999))
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
        return _mail("compose", state, 422, given=given, reply=reply, forward=forward, errors=errors)
    state.sent.append(Sent(**given, reply_to=reply.id if reply else None, forwards=forward.id if forward else None))
    return redirect(f"/sent/{len(state.sent) - 1}")


def _sent(state: MailState, request: SiteRequest) -> SiteResponse:
    number = parse_whole(request.parts["number"], 0, len(state.sent) - 1)
    if number is None:
        return not_found_page()
    sent = state.sent[number]
    return _mail("sent-message", state, sent=sent, forwarded=mailbox(state.seed).find(sent.forwards), folder="sent")


def _contacts(state: MailState, request: SiteRequest) -> SiteResponse:
    return _mail("contacts", state, contacts=sorted(mailbox(state.seed).contacts, key=lambda one: one.name))


_ROUTES: tuple[Route[MailState], ...] = (
    ("GET", "/", _home),
    ("GET", "/login", _login_form),
    ("POST", "/login", _login),
    ("POST", "/logout", _logout),
    ("GET", "/folder/{name}", _folder),
    ("GET", "/search", _search),
    ("POST", "/bulk", _bulk),
    ("GET", "/message/{id}", _message),
    ("POST", "/message/{id}", _move),
    ("GET", "/compose", _compose),
    ("POST", "/compose", _send),
    ("GET", "/sent/{number}", _sent),
    ("GET", "/contacts", _contacts),
)
