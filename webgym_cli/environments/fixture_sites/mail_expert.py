"""Solves the mail site's tasks."""

from __future__ import annotations

import re
from collections.abc import Generator
from decimal import Decimal

from webgym_cli.environments.fixture_sites.expert_driver import ActionPlan, ExpertDriver, Solver
from webgym_cli.records.webrl import AnyAction


def _log_in(driver: ExpertDriver) -> ActionPlan:
    yield from driver.type("User name", driver.asked["user"])
    yield from driver.type("Password", f"{driver.asked['password']}\n")


def _search(driver: ExpertDriver, query: str) -> ActionPlan:
    yield from driver.type("Search mail", f"{query}\n")


def _open(driver: ExpertDriver, query: str, subject: str) -> ActionPlan:
    yield from _search(driver, query)
    yield from driver.click(subject, "link")


def _open_invoice(driver: ExpertDriver, firm: str) -> ActionPlan:
    """Open the one invoice of a firm, whose number nobody told."""
    yield from _search(driver, firm)
    (subject,) = yield from driver.read(rf"\t{re.escape(firm)}\t(Invoice [\w-]+)")
    yield from driver.click(subject, "link")


def _address(driver: ExpertDriver, name: str) -> Generator[AnyAction, None, str]:
    yield from driver.click("Contacts", "link")
    (found,) = yield from driver.read(rf"^{re.escape(name)}\t(\S+@\S+)")
    return found


def _send(driver: ExpertDriver, fields: dict[str, str]) -> ActionPlan:
    yield from driver.fill(fields)
    yield from driver.click("Send", "button")


def _unread(driver: ExpertDriver) -> ActionPlan:
    yield from _log_in(driver)
    (count,) = yield from driver.read(r"Inbox \((\d+) unread\)")
    yield from driver.answer(count)


def _trip(driver: ExpertDriver) -> ActionPlan:
    yield from _log_in(driver)
    subject = f"Our trip to {driver.asked['town']}"
    yield from _open(driver, subject, subject)
    reference, day = yield from driver.read(r"reference is (\S+), and we leave on ([\d-]+)")
    yield from driver.answer(f"{reference}, leaving on {day}")


def _write(driver: ExpertDriver) -> ActionPlan:
    asked = driver.asked
    yield from _log_in(driver)
    yield from driver.click("Contacts", "link")
    yield from driver.click(f"Write to {asked['name']}", "link")
    yield from _send(driver, {"Subject": asked["subject"], "Message": asked["text"]})
    yield from driver.answer("done")


def _archive(driver: ExpertDriver) -> ActionPlan:
    sender = driver.asked["sender"]
    yield from _log_in(driver)
    yield from _search(driver, sender)
    issues = yield from driver.read_all(rf"\t({re.escape(sender)} no\. \d+)")
    for (issue,) in issues:
        yield from driver.click(f"Select {issue}", "checkbox")
    yield from driver.click("Archive", "button")
    yield from driver.answer("done")


def _reply(driver: ExpertDriver) -> ActionPlan:
    topic = driver.asked["topic"]
    yield from _log_in(driver)
    yield from _open(driver, f"Meeting about {topic}", f"Meeting about {topic}")
    room, time = yield from driver.read(r"in (Room \d+) at (\d\d:\d\d)")
    yield from _open(driver, f"Question about {topic}", f"Question about {topic}")
    yield from driver.click("Reply", "link")
    yield from _send(driver, {"Message": f"The meeting is in {room} at {time}."})
    yield from driver.answer("done")


def _forward(driver: ExpertDriver) -> ActionPlan:
    yield from _log_in(driver)
    address = yield from _address(driver, driver.asked["name"])
    yield from _open_invoice(driver, driver.asked["firm"])
    (due,) = yield from driver.read(r"Due date: ([\d-]+)")
    yield from driver.click("Forward", "link")
    yield from _send(driver, {"To": address, "Message": f"Please pay this by {due}."})
    yield from _open_invoice(driver, driver.asked["firm"])
    yield from driver.click("Delete", "button")
    yield from driver.answer("done")


def _invoices(driver: ExpertDriver) -> ActionPlan:
    yield from _log_in(driver)
    address = yield from _address(driver, driver.asked["name"])
    lines, total = [], Decimal()
    for firm in (driver.asked["firm0"], driver.asked["firm1"], driver.asked["firm2"]):
        yield from _open_invoice(driver, firm)
        (amount,) = yield from driver.read(r"Amount due: €([\d,.]+)")
        lines.append(f"{firm}: €{amount}")
        total += Decimal(amount.replace(",", ""))
        yield from driver.click("Archive", "button")
    yield from driver.click("Compose", "link")
    text = ", ".join(lines) + f", in sum €{total}"
    yield from _send(driver, {"To": address, "Subject": "Invoices", "Message": text})
    yield from driver.answer("done")


# The solver of each task.
SOLVERS: dict[str, Solver] = {
    "mail-unread": _unread,
    "mail-trip": _trip,
    "mail-write": _write,
    "mail-archive": _archive,
    "mail-reply": _reply,
    "mail-forward": _forward,
    "mail-invoices": _invoices,
}
