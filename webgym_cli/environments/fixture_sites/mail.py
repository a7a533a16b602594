"""Mail site: its messages, and an episode's changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from webgym_cli.environments.fixture_sites.answers import contains_answer
from webgym_cli.environments.fixture_sites.expressions import code, load_words, money, people, towns

# Folders of received messages; sent ones have their own.
FOLDERS = ("inbox", "archive", "trash")
_ISSUES = 3


@dataclass(frozen=True, slots=True)
class Contact:
    """A person in the address book."""

    name: str
    email: str
    phone: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message that is in the mailbox when the episode starts."""

    sender: str
    email: str
    subject: str
    """Unique subject."""
    body: str
    """Plain text, which may look like HTML."""
    kind: str
    """`invoice`, `trip`, `meeting`, `question`, `issue` or `chat`."""
    facts: tuple[str, ...] = ()
    """Facts in the body: amount and due date; reference and day; room and time."""
    id: int = 0
    """Number from 1, the newest first."""
    date: str = ""
    """YYYY-MM-DD."""

    def __str__(self) -> str:
        return self.subject


@dataclass(frozen=True, slots=True)
class Sent:
    """A message sent in the episode."""

    to: str
    subject: str
    body: str
    reply_to: int | None = None
    """Id of the message that it replies to."""
    forwards: int | None = None
    """Id of the forwarded message."""

    def goes_to(self, someone: Contact | Received) -> bool:
        """Whether it is addressed to a contact, or to the sender of a message."""
        return self.to.casefold() == someone.email.casefold()

    def mentions(self, text: str) -> bool:
        """Whether it contains these words and numbers, independent of spelling."""
        return contains_answer(self.body, text)


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The seeded content of the mailbox."""

    user: str
    password: str
    contacts: tuple[Contact, ...]
    messages: tuple[Received, ...]
    unread: frozenset[int]
    """Ids of the messages that are unread at the start."""

    def find(self, number: int | None) -> Received | None:
        """Return the message with this id, or None."""
        return next((message for message in self.messages if message.id == number), None)

    def of(self, kind: str) -> list[Received]:
        """Return the messages of a kind, newest first."""
        return [message for message in self.messages if message.kind == kind]


@dataclass(slots=True)
class MailState:
    """Changes of an episode in the mailbox."""

    seed: int
    logged_in: bool = False
    moved: dict[int, str] = field(default_factory=dict)
    """Folder of each moved message, by id."""
    opened: dict[int, bool] = field(default_factory=dict)
    """Changed read states, by id: whether the message is read."""
    sent: list[Sent] = field(default_factory=list)

    def folder(self, message: int) -> str:
        """Return the folder of a message."""
        return self.moved.get(message, "inbox")

    def count_unread(self) -> int:
        """Return the number of unread messages in the inbox."""
        messages = mailbox(self.seed).messages
        return sum(self.folder(message.id) == "inbox" and self.is_unread(message.id) for message in messages)

    def is_unread(self, message: int) -> bool:
        """Whether a message is unread."""
        return not self.opened.get(message, message not in mailbox(self.seed).unread)

    @property
    def letter(self) -> Sent | None:
        """The message that was sent; None unless it is the only one."""
        return self.sent[0] if len(self.sent) == 1 else None

    def moved_only(self, *messages: Received) -> bool:
        """Whether no other message has left the inbox."""
        elsewhere = {message for message, folder in self.moved.items() if folder != "inbox"}
        return elsewhere <= {message.id for message in messages}


@lru_cache(maxsize=128)
def mailbox(seed: int) -> Mailbox:
    """Return the mailbox of a seed."""
    rng = random.Random(f"mail/{seed}")
    names = people(rng, 10)
    contacts = tuple(
        Contact(
            name,
            f"{name.lower().replace(' ', '.')}@post.example",
            f"0{rng.randint(200, 999)} {rng.randint(100000, 999999)}",
        )
        for name in names[1:]
    )
    drafts = list(_letters(rng, contacts))
    rng.shuffle(drafts)
    days = sorted((rng.randint(1, 28 * 3) for _ in drafts), reverse=True)
    messages = tuple(
        replace(draft, id=at, date=f"2026-{4 + (day - 1) // 28:02d}-{(day - 1) % 28 + 1:02d}")
        for at, (day, draft) in enumerate(zip(days, drafts, strict=True), 1)
    )
    return Mailbox(
        user=names[0].lower().replace(" ", "."),
        password=code(rng),
        contacts=contacts,
        messages=messages,
        unread=frozenset(rng.sample(range(1, len(messages) + 1), rng.randint(5, 14))),
    )


def _letters(rng: random.Random, contacts: tuple[Contact, ...]) -> Iterator[Received]:
    yield from _business(rng)
    yield from _meetings(rng, contacts)
    for town, contact in zip(towns(rng, 4), rng.sample(contacts, 4), strict=True):
        reference, day = code(rng), f"2026-{rng.randint(8, 12):02d}-{rng.randint(1, 28):02d}"
        body = f"Hello,\nI have booked the trip to {town} for us. The reference is {reference}, and we leave on {day}."
        yield Received(contact.name, contact.email, f"Our trip to {town}", body, "trip", (reference, day))
    chats = load_words("mail")["chats"]
    for (subject, body), contact in zip(chats, rng.sample(contacts, len(chats)), strict=True):
        yield Received(contact.name, contact.email, subject, body, "chat")


def _business(rng: random.Random) -> Iterator[Received]:
    owners = rng.sample([name.split()[1] for name in people(rng, 8)], 6)
    for owner, trade in zip(owners, load_words("mail")["trades"], strict=False):
        firm, number = f"{owner} {trade}", code(rng, 2, 5)
        amount, due = money(rng.randint(1900, 89900)), f"2026-{rng.randint(8, 12):02d}-{rng.randint(1, 28):02d}"
        body = f"Dear customer,\nplease pay invoice {number}.\nAmount due: {amount}\nDue date: {due}\nYours, {firm}"
        yield Received(firm, f"billing@{owner.lower()}.example", f"Invoice {number}", body, "invoice", (amount, due))
    for owner, paper in zip(owners[4:], load_words("mail")["papers"], strict=True):
        first = rng.randint(20, 400)
        for issue in range(first, first + _ISSUES):
            name = f"{owner} {paper}"
            yield Received(
                name, f"news@{owner.lower()}.example", f"{name} no. {issue}", "The news of the week.", "issue"
            )


def _meetings(rng: random.Random, contacts: tuple[Contact, ...]) -> Iterator[Received]:
    for topic in rng.sample(load_words("mail")["topics"], 4):
        host, guest = rng.sample(contacts, 2)
        room, time = f"Room {rng.randint(101, 499)}", f"{rng.randint(8, 18):02d}:{rng.choice((0, 15, 30, 45)):02d}"
        body = f"Hello all,\nwe meet about {topic} in {room} at {time}. Please be on time."
        yield Received(host.name, host.email, f"Meeting about {topic}", body, "meeting", (room, time, topic))
        asks = f"Hello,\nin which room and at what time is the meeting about {topic}? I lost the invitation."
        yield Received(guest.name, guest.email, f"Question about {topic}", asks, "question", (topic,))
