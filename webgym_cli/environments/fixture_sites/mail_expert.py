"""Solves the mail site's tasks."""

from __future__ import annotations

import re
from collections.abc import Generator
from decimal import Decimal

from webgym_cli.environments.fixture_sites.expert_driver import Hands, Plan, Solver
from webgym_cli.records.webrl import AnyAction


def _log_in(hands: Hands) -> Plan:
    yield from hands.type("User name", hands.asked["user"])
    yield from hands.type("Password", f"{hands.asked['password']}\n")


def _search(hands: Hands, query: str) -> Plan:
    yield from hands.type("Search mail", f"{query}\n")


def _open(hands: Hands, query: str, subject: str) -> Plan:
    yield from _search(hands, query)
    yield from hands.click(subject, "link")


def _open_invoice(hands: Hands, firm: str) -> Plan:
    """Open the one invoice of a firm, whose number nobody told."""
    yield from _search(hands, firm)
    (subject,) = yield from hands.read(rf"\t{re.escape(firm)}\t(Invoice [\w-]+)")
    yield from hands.click(subject, "link")


def _address(hands: Hands, name: str) -> Generator[AnyAction, None, str]:
    yield from hands.click("Contacts", "link")
    (found,) = yield from hands.read(rf"^{re.escape(name)}\t(\S+@\S+)")
    return found


def _send(hands: Hands, fields: dict[str, str]) -> Plan:
    yield from hands.fill(fields)
    yield from hands.click("Send", "button")


def _unread(hands: Hands) -> Plan:
    yield from _log_in(hands)
    (count,) = yield from hands.read(r"Inbox \((\d+) unread\)")
    yield from hands.answer(count)


def _trip(hands: Hands) -> Plan:
    yield from _log_in(hands)
    subject = f"Our trip to {hands.asked['town']}"
    yield from _open(hands, subject, subject)
    reference, day = yield from hands.read(r"reference is (\S+), and we leave on ([\d-]+)")
    yield from hands.answer(f"{reference}, leaving on {day}")


def _write(hands: Hands) -> Plan:
    asked = hands.asked
    yield from _log_in(hands)
    yield from hands.click("Contacts", "link")
    yield from hands.click(f"Write to {asked['name']}", "link")
    yield from _send(hands, {"Subject": asked["subject"], "Message": asked["text"]})
    yield from hands.answer("done")


def _archive(hands: Hands) -> Plan:
    sender = hands.asked["sender"]
    yield from _log_in(hands)
    yield from _search(hands, sender)
    issues = yield from hands.read_all(rf"\t({re.escape(sender)} no\. \d+)")
    for (issue,) in issues:
        yield from hands.click(f"Select {issue}", "checkbox")
    yield from hands.click("Archive", "button")
    yield from hands.answer("done")


def _reply(hands: Hands) -> Plan:
    topic = hands.asked["topic"]
    yield from _log_in(hands)
    yield from _open(hands, f"Meeting about {topic}", f"Meeting about {topic}")
    room, time = yield from hands.read(r"in (Room \d+) at (\d\d:\d\d)")
    yield from _open(hands, f"Question about {topic}", f"Question about {topic}")
    yield from hands.click("Reply", "link")
    yield from _send(hands, {"Message": f"The meeting is in {room} at {time}."})
    yield from hands.answer("done")


def _forward(hands: Hands) -> Plan:
    yield from _log_in(hands)
    address = yield from _address(hands, hands.asked["name"])
    yield from _open_invoice(hands, hands.asked["firm"])
    (due,) = yield from hands.read(r"Due date: ([\d-]+)")
    yield from hands.click("Forward", "link")
    yield from _send(hands, {"To": address, "Message": f"Please pay this by {due}."})
    yield from _open_invoice(hands, hands.asked["firm"])
    yield from hands.click("Delete", "button")
    yield from hands.answer("done")


def _invoices(hands: Hands) -> Plan:
    yield from _log_in(hands)
    address = yield from _address(hands, hands.asked["name"])
    lines, total = [], Decimal()
    for firm in (hands.asked["firm0"], hands.asked["firm1"], hands.asked["firm2"]):
        yield from _open_invoice(hands, firm)
        (amount,) = yield from hands.read(r"Amount due: €([\d,.]+)")
        lines.append(f"{firm}: €{amount}")
        total += Decimal(amount.replace(",", ""))
        yield from hands.click("Archive", "button")
    yield from hands.click("Compose", "link")
    text = ", ".join(lines) + f", in sum €{total}"
    yield from _send(hands, {"To": address, "Subject": "Invoices", "Message": text})
    yield from hands.answer("done")


SOLVERS: dict[str, Solver] = {
    "mail-unread": _unread,
    "mail-trip": _trip,
    "mail-write": _write,
    "mail-archive": _archive,
    "mail-reply": _reply,
    "mail-forward": _forward,
    "mail-invoices": _invoices,
}
"""The solver of each task."""
