"""The mail site's tasks."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal

from webgym_cli.environments.fixture_sites.answers import contains_answer, is_same_text
from webgym_cli.environments.fixture_sites.mail import Mailbox, Sent, mailbox
from webgym_cli.environments.fixture_sites.task_template import Check, SiteTask, TaskInstance, answer_contains
from webgym_cli.environments.fixture_sites.words import code

_PURPOSES = ("Picnic", "Rehearsal", "Invitation", "Delivery", "Repair")
_TEXTS = ("Please bring the documents.", "I will be there at noon.", "The parcel has arrived.", "See you on Monday.")


def _start(task: str, seed: int) -> tuple[random.Random, Mailbox, dict[str, str]]:
    box = mailbox(seed)
    return random.Random(f"{task}/{seed}"), box, {"user": box.user, "password": box.password}


def _wrote(holds: Callable[[Sent], bool]) -> Check:
    """Make a check of the message that was sent; it fails unless exactly one was."""
    return lambda state, answer: len(state.sent) == 1 and holds(state.sent[0])


def _to(address: str) -> Check:
    return _wrote(lambda sent: sent.to.casefold() == address.casefold())


def _mentions(text: str) -> Check:
    return _wrote(lambda sent: contains_answer(sent.body, text))


def _lies_in(message: int, folder: str) -> Check:
    return lambda state, answer: state.folder(message) == folder


def _only_moved(*messages: int) -> Check:
    """Make a check that no other message has left the inbox."""
    return lambda state, answer: state.elsewhere() <= set(messages)


def _unread(seed: int) -> TaskInstance:
    _, box, values = _start("mail-unread", seed)
    count = str(len(box.unread))
    return TaskInstance({**values, "count": count}, (answer_contains(count),), count)


def _trip(seed: int) -> TaskInstance:
    rng, box, values = _start("mail-trip", seed)
    message = rng.choice(box.of("trip"))
    reference, day = message.facts
    town = message.subject.rpartition(" ")[2]
    values |= {"sender": message.sender, "town": town, "reference": reference, "day": day}
    return TaskInstance(values, (answer_contains(reference), answer_contains(day)), f"{reference}, {day}")


def _write(seed: int) -> TaskInstance:
    rng, box, values = _start("mail-write", seed)
    contact = rng.choice(box.contacts)
    subject, text = f"{rng.choice(_PURPOSES)} {code(rng)}", rng.choice(_TEXTS)
    checks = (
        _to(contact.email),
        _wrote(lambda sent: is_same_text(sent.subject, subject)),
        _wrote(lambda sent: is_same_text(sent.body, text)),
    )
    values |= {"name": contact.name, "email": contact.email, "subject": subject, "text": text}
    return TaskInstance(values, checks)


def _archive(seed: int) -> TaskInstance:
    rng, box, values = _start("mail-archive", seed)
    sender = rng.choice(box.of("issue")).sender
    issues = [message for message in box.messages if message.sender == sender]
    values |= {"sender": sender} | {f"issue{at}": message.subject for at, message in enumerate(issues)}
    moved = tuple(_lies_in(message.id, "archive") for message in issues)
    return TaskInstance(values, (*moved, _only_moved(*(message.id for message in issues))))


def _reply(seed: int) -> TaskInstance:
    rng, box, values = _start("mail-reply", seed)
    meeting = rng.choice(box.of("meeting"))
    room, time, topic = meeting.facts
    question = next(message for message in box.of("question") if message.facts == (topic,))
    checks = (
        lambda state, answer: len(state.sent) == 1,
        _wrote(lambda sent: sent.reply_to == question.id),
        _to(question.email),
        _mentions(room.removeprefix("Room ")),
        _mentions(time),
    )
    values |= {"asker": question.sender, "topic": topic, "room": room, "time": time, "host": meeting.sender}
    return TaskInstance(values, checks)


def _forward(seed: int) -> TaskInstance:
    rng, box, values = _start("mail-forward", seed)
    invoice, contact = rng.choice(box.of("invoice")), rng.choice(box.contacts)
    amount, due = invoice.facts
    checks = (
        lambda state, answer: len(state.sent) == 1,
        _wrote(lambda sent: sent.forwards == invoice.id),
        _to(contact.email),
        _mentions(due),
        _lies_in(invoice.id, "trash"),
        _only_moved(invoice.id),
    )
    values |= {"firm": invoice.sender, "name": contact.name, "email": contact.email, "due": due, "amount": amount}
    return TaskInstance({**values, "subject": invoice.subject}, checks)


def _invoices(seed: int) -> TaskInstance:
    rng, box, values = _start("mail-invoices", seed)
    invoices, contact = rng.sample(box.of("invoice"), 3), rng.choice(box.contacts)
    amounts = [invoice.facts[0] for invoice in invoices]
    total = sum((Decimal(amount.removeprefix("€").replace(",", "")) for amount in amounts), Decimal())
    checks = (
        _to(contact.email),
        _wrote(lambda sent: is_same_text(sent.subject, "Invoices")),
        *(_mentions(amount) for amount in amounts),
        _mentions(f"{total}"),
        *(_lies_in(invoice.id, "archive") for invoice in invoices),
        _only_moved(*(invoice.id for invoice in invoices)),
    )
    values |= {"name": contact.name, "email": contact.email, "total": f"€{total:,}"}
    for at, invoice in enumerate(invoices):
        values |= {f"firm{at}": invoice.sender, f"amount{at}": amounts[at]}
    return TaskInstance(values, checks)


_LOGIN = "Log in as {user} with the password {password}. "
_HOST = "mail.test"
TASKS = (
    SiteTask(
        "mail-unread",
        _HOST,
        _LOGIN + "How many unread messages are in the inbox?",
        ("There are {count} unread messages.",),
        _unread,
    ),
    SiteTask(
        "mail-trip",
        _HOST,
        _LOGIN + "{sender} wrote about a trip to {town}. Which reference does the trip have, and on which day does it "
        "leave? Write the day as in the message.",
        ("The reference is {reference}.", "The trip leaves on {day}."),
        _trip,
    ),
    SiteTask(
        "mail-write",
        _HOST,
        _LOGIN + "Write to {name}, whose address is in the contacts. The subject is: {subject}. The message is: {text}",
        ("One message was sent, to {email}.", "Its subject is: {subject}.", "Its text is: {text}"),
        _write,
    ),
    SiteTask(
        "mail-archive",
        _HOST,
        _LOGIN + "Archive all messages from {sender}, and move no others.",
        (
            "{issue0} is in the archive.",
            "{issue1} is in the archive.",
            "{issue2} is in the archive.",
            "No other message was moved.",
        ),
        _archive,
    ),
    SiteTask(
        "mail-reply",
        _HOST,
        _LOGIN + "{asker} asks about the meeting on {topic}. Find the invitation by {host}, then reply to the question "
        "of {asker} and name the room and the time.",
        (
            "One message was sent.",
            "It is a reply to the question about {topic}.",
            "It went to {asker}.",
            "It names the {room}.",
            "It names the time {time}.",
        ),
        _reply,
    ),
    SiteTask(
        "mail-forward",
        _HOST,
        _LOGIN + "Forward the invoice of {firm} to {name}, whose address is in the contacts. Name the due date of the "
        "invoice in your message. Then delete the invoice, and move no other message.",
        (
            "One message was sent.",
            "It forwards {subject}.",
            "It went to {email}.",
            "It names the due date {due}.",
            "{subject} is in the trash.",
            "No other message was moved.",
        ),
        _forward,
    ),
    SiteTask(
        "mail-invoices",
        _HOST,
        _LOGIN + "Send {name}, whose address is in the contacts, one message with the subject Invoices that names the "
        "amounts due of {firm0}, {firm1} and {firm2} and their sum. Archive these three invoices, and move no other "
        "message.",
        (
            "One message was sent, to {email}.",
            "Its subject is Invoices.",
            "It names {amount0} for {firm0}.",
            "It names {amount1} for {firm1}.",
            "It names {amount2} for {firm2}.",
            "It names the sum {total}.",
            "The invoice of {firm0} is in the archive.",
            "The invoice of {firm1} is in the archive.",
            "The invoice of {firm2} is in the archive.",
            "No other message was moved.",
        ),
        _invoices,
    ),
)
