"""The mail site's pages: login, folders, reading, writing, contacts."""

from __future__ import annotations

import re
from typing import Any

from webgym_cli.environments.fixture_sites.mail import FOLDERS, MailState, Received, Sent, mailbox
from webgym_cli.environments.fixture_sites.web import Reply, Route, Visit, dispatch, missing, page, redirect, whole

_ON_A_PAGE = 14
_MOVES = {"archive": "archive", "delete": "trash", "inbox": "inbox"}
_EMAIL = re.compile(r"[^@\s,;]+@[^@\s,;]+\.[^@\s,;]+")
_LONGEST = 20_000


def answer(state: MailState, visit: Visit) -> Reply:
    """Answer a visit to the mail site; without a login everything leads to the login page."""
    if not state.logged_in and visit.path != "/login":
        return redirect("/login")
    return dispatch(_ROUTES, state, visit)


def _mail(template: str, state: MailState, status: int = 200, /, **values: Any) -> Reply:
    box = mailbox(state.seed)
    unread = sum(state.folder(one.id) == "inbox" and state.is_unread(one.id) for one in box.messages)
    values = {"query": "", "folder": "", **values}
    return page(f"mail/{template}.html", status, user=box.user, unread=unread, **values)


def _login_form(state: MailState, visit: Visit) -> Reply:
    return page("mail/login.html", error="", user="")


def _login(state: MailState, visit: Visit) -> Reply:
    box = mailbox(state.seed)
    user, password = visit.field("user"), visit.field("password")
    if (user, password) != (box.user, box.password):
        return page("mail/login.html", 422, error="User name or password is wrong.", user=user)
    state.logged_in = True
    return redirect("/folder/inbox")


def _logout(state: MailState, visit: Visit) -> Reply:
    state.logged_in = False
    return redirect("/login")


def _home(state: MailState, visit: Visit) -> Reply:
    return redirect("/folder/inbox")


def _folder(state: MailState, visit: Visit) -> Reply:
    name = visit.parts["name"]
    if name == "sent":
        return _mail("sent", state, folder=name, sent=list(enumerate(state.sent))[::-1])
    if name not in FOLDERS:
        return missing()
    found = [message for message in mailbox(state.seed).messages if state.folder(message.id) == name]
    return _listing(state, visit, name.title(), found, folder=name)


def _search(state: MailState, visit: Visit) -> Reply:
    query = visit.query.get("q", "").strip()
    words = query.casefold().split()
    found = [
        message
        for message in mailbox(state.seed).messages
        if all(word in f"{message.sender} {message.subject} {message.body}".casefold() for word in words)
    ]
    return _listing(state, visit, f"Search: {query}", found, query=query)


def _listing(
    state: MailState, visit: Visit, title: str, found: list[Received], folder: str = "", query: str = ""
) -> Reply:
    pages = max(1, -(-len(found) // _ON_A_PAGE))
    number = whole(visit.query.get("page", "1"), 1, pages) or 1
    shown = found[(number - 1) * _ON_A_PAGE : number * _ON_A_PAGE]
    return _mail(
        "listing",
        state,
        title=title,
        folder=folder,
        query=query,
        path=visit.path,
        total=len(found),
        rows=[(message, state.is_unread(message.id), state.folder(message.id)) for message in shown],
        number=number,
        pages=pages,
    )


def _bulk(state: MailState, visit: Visit) -> Reply:
    """Do one thing with all ticked messages."""
    box, do = mailbox(state.seed), visit.field("do")
    chosen = [box.find(whole(text, 1, 999)) for text in visit.form.get("id", ())]
    for message in chosen:
        if message is not None and do in _MOVES:
            state.moved[message.id] = _MOVES[do]
        elif message is not None and do in ("read", "unread"):
            state.opened[message.id] = do == "read"
    back = visit.field("back")
    return redirect(back if back.startswith("/") and not back.startswith("//") else "/folder/inbox")


def _message(state: MailState, visit: Visit) -> Reply:
    message = mailbox(state.seed).find(whole(visit.parts["id"], 1, 999))
    if message is None:
        return missing()
    state.opened[message.id] = True
    return _mail("message", state, message=message, folder=state.folder(message.id))


def _move(state: MailState, visit: Visit) -> Reply:
    message = mailbox(state.seed).find(whole(visit.parts["id"], 1, 999))
    folder = _MOVES.get(visit.field("do"))
    if message is None or folder is None:
        return missing()
    state.moved[message.id] = folder
    return redirect("/folder/inbox")


def _compose(state: MailState, visit: Visit) -> Reply:
    box = mailbox(state.seed)
    reply = box.find(whole(visit.query.get("reply", ""), 1, 999))
    forward = box.find(whole(visit.query.get("forward", ""), 1, 999))
    given = {"to": visit.query.get("to", ""), "subject": "", "body": ""}
    if reply is not None:
        given |= {"to": reply.email, "subject": f"Re: {reply.subject}"}
    elif forward is not None:
        given |= {"subject": f"Fwd: {forward.subject}"}
    return _mail("compose", state, given=given, reply=reply, forward=forward, errors=[])


def _send(state: MailState, visit: Visit) -> Reply:
    box = mailbox(state.seed)
    reply = box.find(whole(visit.field("reply"), 1, 999))
    forward = box.find(whole(visit.field("forward"), 1, 999))
    given = {name: visit.field(name) for name in ("to", "subject", "body")}
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


def _sent(state: MailState, visit: Visit) -> Reply:
    number = whole(visit.parts["number"], 0, len(state.sent) - 1)
    if number is None:
        return missing()
    sent = state.sent[number]
    return _mail("sent-message", state, sent=sent, forwarded=mailbox(state.seed).find(sent.forwards), folder="sent")


def _contacts(state: MailState, visit: Visit) -> Reply:
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
