"""Booking site: its crossings and rooms, and the bookings of an episode."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache

from webgym_cli.environments.fixture_sites.answers import is_same_text
from webgym_cli.environments.fixture_sites.words import code, load_words, money, people, towns

# Seats are named 1A to 8F; A and F are at the windows.
ROWS, LETTERS = 8, "ABCDEF"
MEALS = ("None", "Vegetarian", "Fish")
# Number of bookable days, from the first day on.
BOOKABLE_DAYS = 90
# Number of tickets at the start of every episode.
EARLIER = 3
_PORTS = 5


@dataclass(frozen=True, slots=True)
class Crossing:
    """One departure on one day."""

    key: str
    """Its name in URLs: `Alwick_Brammouth_2027-03-14_0815`."""
    origin: str
    target: str
    day: str
    """YYYY-MM-DD."""
    time: str
    """HH:MM."""
    minutes: int
    vessel: str
    cents: int
    """Price; unique per day and route."""
    taken: frozenset[str]
    """Seats taken by others."""

    @property
    def price(self) -> str:
        """The formatted price."""
        return money(self.cents)


@dataclass(frozen=True, slots=True)
class Room:
    """One room of a house, with the same price every day."""

    id: str
    """Number from 0, as text."""
    town: str
    house: str
    name: str
    sleeps: int
    breakfast: bool
    cents: int
    """Price per night; unique."""

    def __str__(self) -> str:
        """Return its name."""
        return self.name

    @property
    def price(self) -> str:
        """The formatted price."""
        return money(self.cents)


@dataclass(slots=True)
class Booking:
    """A booking for a person."""

    code: str
    name: str
    email: str

    def is_for(self, name: str, email: str) -> bool:
        """Whether it is for this person."""
        return is_same_text(self.name, name) and self.email.casefold() == email


@dataclass(slots=True)
class FerryTicket(Booking):
    """A booked seat."""

    crossing: str
    """Key of the crossing."""
    seat: str
    meal: str
    cancelled: bool = False


@dataclass(slots=True)
class Stay(Booking):
    """A booked room."""

    room: str
    """Id of the room."""
    day: str
    """Day of arrival, YYYY-MM-DD."""
    nights: int
    guests: int


@dataclass(frozen=True, slots=True)
class Harbour:
    """The seeded content of the site, except the crossings, which `crossings` generates by day."""

    ports: tuple[str, ...]
    first_day: date
    rooms: tuple[Room, ...]
    owner: str
    """Owner of the bookings that exist at the start."""

    @property
    def last_day(self) -> date:
        """The last bookable day."""
        return self.first_day + timedelta(days=BOOKABLE_DAYS - 1)

    def day(self, number: int) -> str:
        """Return a bookable day by its number, from 0."""
        return (self.first_day + timedelta(days=number)).isoformat()

    def best_room(self, town: str, guests: int) -> Room:
        """Return the cheapest room of a town for the guests with breakfast."""
        fitting = [room for room in self.rooms if room.town == town and room.breakfast and room.sleeps >= guests]
        return min(fitting, key=lambda room: room.cents)

    def room(self, room_id: str) -> Room | None:
        """Return the room with this id, or None."""
        return next((room for room in self.rooms if room.id == room_id), None)


@dataclass(slots=True)
class BookingState:
    """Bookings as listed under `My bookings`."""

    seed: int
    tickets: list[FerryTicket] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)

    @property
    def new_ticket(self) -> FerryTicket | None:
        """The new ticket; None unless there is exactly one and the earlier ones are unchanged."""
        kept = not any(ticket.cancelled for ticket in self.tickets)
        return self.tickets[-1] if kept and len(self.tickets) == EARLIER + 1 else None

    @property
    def new_stay(self) -> Stay | None:
        """The booked room; None unless there is exactly one."""
        return self.stays[0] if len(self.stays) == 1 else None

    def kept(self, but: int) -> list[tuple[str, str]]:
        """Return crossing and seat of all tickets that are not cancelled, except one."""
        rest = self.tickets[:but] + self.tickets[but + 1 :]
        return [(ticket.crossing, ticket.seat) for ticket in rest if not ticket.cancelled]

    def free_days(self) -> list[str]:
        """Return days without a ticket, at least a week before the last bookable day."""
        booked = {ticket.crossing.split("_")[2] for ticket in self.tickets}
        days = map(harbour(self.seed).day, range(BOOKABLE_DAYS - 7))
        return [day for day in days if day not in booked]

    def ticket(self, number: str) -> FerryTicket | None:
        """Return the ticket with this code unless it is cancelled."""
        return next((ticket for ticket in self.tickets if ticket.code == number and not ticket.cancelled), None)

    def free(self, crossing: Crossing) -> list[str]:
        """Return the free seats in order."""
        mine = {ticket.seat for ticket in self.tickets if ticket.crossing == crossing.key and not ticket.cancelled}
        return [seat for seat in seats() if seat not in crossing.taken and seat not in mine]

    def next_code(self) -> str:
        """Return the code of the next booking."""
        return code(random.Random(f"booking/{self.seed}/{len(self.tickets)}/{len(self.stays)}"), 2, 4)


def seats() -> list[str]:
    """Return the names of all seats, row by row."""
    return [f"{row}{letter}" for row in range(1, ROWS + 1) for letter in LETTERS]


def new_booking_state(seed: int) -> BookingState:
    """Return the initial state of an episode: three earlier tickets for different routes and days."""
    port = harbour(seed)
    rng = random.Random(f"booking/{seed}/earlier")
    state = BookingState(seed)
    targets = rng.sample(port.ports[1:], EARLIER)
    for target, number in zip(targets, sorted(rng.sample(range(5, BOOKABLE_DAYS), EARLIER)), strict=True):
        crossing = rng.choice(crossings(seed, port.ports[0], target, port.day(number)))
        email = port.owner.lower().replace(" ", ".") + "@post.example"
        seat = rng.choice(state.free(crossing))
        state.tickets.append(FerryTicket(state.next_code(), port.owner, email, crossing.key, seat, MEALS[0]))
    return state


@lru_cache(maxsize=128)
def harbour(seed: int) -> Harbour:
    """Return the site of a seed."""
    rng = random.Random(f"booking/{seed}")
    ports = tuple(towns(rng, _PORTS))
    words = load_words("booking")
    names = words["rooms"]
    houses = rng.sample(words["houses"], 2 * _PORTS)
    prices = iter(rng.sample(range(4100, 21900, 100), 2 * _PORTS * len(names)))
    rooms: list[Room] = []
    for at, house in enumerate(houses):
        with_breakfast = rng.sample(names, 2)
        for name in names:
            sleeps = 2 if name in with_breakfast[:1] else rng.randint(1, 4)
            town, breakfast = ports[at % _PORTS], name in with_breakfast
            rooms.append(Room(str(len(rooms)), town, house, name, sleeps, breakfast, next(prices)))
    first_day = date(2027, 1, 1) + timedelta(days=rng.randint(0, 500))
    return Harbour(ports, first_day, tuple(rooms), people(rng, 1)[0])


@lru_cache(maxsize=512)
def crossings(seed: int, origin: str, target: str, day: str) -> tuple[Crossing, ...]:
    """Return the crossings of a route on a day, by time; empty for an unknown route or day."""
    port = harbour(seed)
    ports = port.ports
    bookable = {port.day(number) for number in range(BOOKABLE_DAYS)}
    if origin == target or origin not in ports or target not in ports or day not in bookable:
        return ()
    rng = random.Random(f"booking/{seed}/{origin}/{target}/{day}")
    count = rng.randint(3, 5)
    prices = rng.sample(range(1900, 9900, 50), count)
    times = sorted(rng.sample(range(6 * 4, 22 * 4), count))
    offers = []
    for cents, quarter in zip(prices, times, strict=True):
        time = f"{quarter // 4:02d}:{quarter % 4 * 15:02d}"
        # One window seat is always free, so that every task can be solved.
        kept = f"{rng.randint(1, ROWS)}{rng.choice('AF')}"
        taken = frozenset(rng.sample([seat for seat in seats() if seat != kept], rng.randint(9, 30)))
        key = f"{origin}_{target}_{day}_{time.replace(':', '')}"
        vessel = rng.choice(load_words("booking")["vessels"])
        offers.append(Crossing(key, origin, target, day, time, rng.randint(50, 310), vessel, cents, taken))
    return tuple(offers)


def find_crossing(seed: int, key: str) -> Crossing | None:
    """Return the crossing with this key, or None."""
    parts = key.split("_")
    if len(parts) != 4:
        return None
    return next((one for one in crossings(seed, parts[0], parts[1], parts[2]) if one.key == key), None)
