"""The booking site's tasks."""

from __future__ import annotations

import random
from collections.abc import Callable

from webgym_cli.environments.fixture_sites.answers import is_same_text
from webgym_cli.environments.fixture_sites.booking import (
    BOOKABLE_DAYS,
    MEALS,
    BookingState,
    Crossing,
    FerryTicket,
    Harbour,
    Room,
    Stay,
    crossings,
    find_crossing,
    harbour,
    new_booking_state,
)
from webgym_cli.environments.fixture_sites.task_template import Check, SiteTask, TaskInstance, answer_contains
from webgym_cli.environments.fixture_sites.words import people

# Tickets that every episode starts with.
_EARLIER = 3


def _start(task: str, seed: int) -> tuple[random.Random, Harbour]:
    return random.Random(f"{task}/{seed}"), harbour(seed)


def _day_of_crossings(rng: random.Random, seed: int) -> tuple[dict[str, str], tuple[Crossing, ...]]:
    """Draw a route and a day on which no earlier ticket lies."""
    found = harbour(seed)
    origin, target = rng.sample(found.ports, 2)
    booked = {ticket.crossing.split("_")[2] for ticket in new_booking_state(seed).tickets}
    day = rng.choice([found.day(number) for number in range(BOOKABLE_DAYS - 7) if found.day(number) not in booked])
    return {"origin": origin, "target": target, "day": day}, crossings(seed, origin, target, day)


def _person(rng: random.Random) -> dict[str, str]:
    name = people(rng, 1)[0]
    return {"name": name, "email": f"{name.split()[0].lower()}@mail.example"}


def _ticket(holds: Callable[[FerryTicket], bool]) -> Check:
    """Make a check of the ticket that was booked; it fails unless exactly one was and the earlier ones stand."""

    def check(state: BookingState, answer: str) -> bool:
        kept = not any(ticket.cancelled for ticket in state.tickets)
        return kept and len(state.tickets) == _EARLIER + 1 and holds(state.tickets[-1])

    return check


def _stay(holds: Callable[[Stay], bool]) -> Check:
    """Make a check of the room that was booked; it fails unless exactly one was."""
    return lambda state, answer: len(state.stays) == 1 and holds(state.stays[0])


def _is_for(booking: FerryTicket | Stay, person: dict[str, str]) -> bool:
    return is_same_text(booking.name, person["name"]) and booking.email.casefold() == person["email"]


def _crossing_of(seed: int, ticket: FerryTicket) -> Crossing:
    crossing = find_crossing(seed, ticket.crossing)
    if crossing is None:
        raise LookupError(f"the ticket {ticket.code} has no crossing")
    return crossing


def _best_room(found: Harbour, town: str, guests: int) -> Room:
    """Return the cheapest room of a town that sleeps the guests and has breakfast."""
    fitting = [room for room in found.rooms if room.town == town and room.breakfast and room.sleeps >= guests]
    return min(fitting, key=lambda room: room.cents)


def _cheapest(seed: int) -> TaskInstance:
    rng, _ = _start("booking-cheapest", seed)
    values, found = _day_of_crossings(rng, seed)
    best = min(found, key=lambda one: one.cents)
    values |= {"time": best.time, "price": best.price}
    rivals = tuple(one.time for one in found if one is not best)
    return TaskInstance(
        values, (answer_contains(best.time), answer_contains(best.price)), f"{best.time}, {best.price}", rivals
    )


def _vessel(seed: int) -> TaskInstance:
    rng, _ = _start("booking-vessel", seed)
    values, found = _day_of_crossings(rng, seed)
    one = rng.choice(found)
    free = str(len(BookingState(seed).free(one)))
    values |= {"time": one.time, "vessel": one.vessel, "minutes": str(one.minutes), "free": free}
    rivals = tuple({other.vessel for other in found} - {one.vessel})
    checks = (answer_contains(one.vessel), answer_contains(str(one.minutes)), answer_contains(free))
    return TaskInstance(values, checks, f"{one.vessel}, {one.minutes} min, {free} free seats", rivals)


def _cancel(seed: int) -> TaskInstance:
    rng, _ = _start("booking-cancel", seed)
    earlier = new_booking_state(seed).tickets
    at = rng.randrange(len(earlier))
    target = _crossing_of(seed, earlier[at]).target
    checks: tuple[Check, ...] = (
        lambda state, answer: state.tickets[at].cancelled,
        lambda state, answer: (
            len(state.tickets) == _EARLIER
            and sum(one.cancelled for one in state.tickets) <= 1
            and not any(one.cancelled for one in state.tickets[:at] + state.tickets[at + 1 :])
        ),
    )
    return TaskInstance({"code": earlier[at].code, "target": target}, checks)


def _change(seed: int) -> TaskInstance:
    rng, _ = _start("booking-change", seed)
    state = new_booking_state(seed)
    at = rng.randrange(len(state.tickets))
    crossing = _crossing_of(seed, state.tickets[at])
    seat = rng.choice(state.free(crossing))
    others = [(one.crossing, one.seat) for number, one in enumerate(state.tickets) if number != at]
    checks: tuple[Check, ...] = (
        lambda state, answer: state.tickets[at].seat == seat,
        lambda state, answer: state.tickets[at].crossing == crossing.key and not state.tickets[at].cancelled,
        lambda state, answer: (
            [(one.crossing, one.seat) for number, one in enumerate(state.tickets) if number != at and not one.cancelled]
            == others
        ),
        lambda state, answer: not state.stays,
    )
    return TaskInstance({"target": crossing.target, "day": crossing.day, "seat": seat}, checks)


def _ferry(seed: int) -> TaskInstance:
    rng, _ = _start("booking-ferry", seed)
    values, found = _day_of_crossings(rng, seed)
    one, person, meal = rng.choice(found), _person(rng), rng.choice(MEALS[1:])
    seat = rng.choice(BookingState(seed).free(one))
    checks = (
        _ticket(lambda ticket: True),
        _ticket(lambda ticket: ticket.crossing.rpartition("_")[0] == one.key.rpartition("_")[0]),
        _ticket(lambda ticket: ticket.crossing == one.key),
        _ticket(lambda ticket: ticket.seat == seat),
        _ticket(lambda ticket: _is_for(ticket, person)),
        _ticket(lambda ticket: ticket.meal == meal),
    )
    return TaskInstance({**values, **person, "time": one.time, "seat": seat, "meal": meal}, checks)


def _room(seed: int) -> TaskInstance:
    rng, found = _start("booking-room", seed)
    room, person = rng.choice(found.rooms), _person(rng)
    day, nights, guests = found.day(rng.randrange(BOOKABLE_DAYS)), rng.randint(2, 9), rng.randint(1, room.sleeps)
    checks = (
        _stay(lambda stay: stay.room == room.id),
        _stay(lambda stay: stay.day == day),
        _stay(lambda stay: stay.nights == nights),
        _stay(lambda stay: stay.guests == guests),
        _stay(lambda stay: _is_for(stay, person)),
    )
    values = {"room": room.name, "house": room.house, "town": room.town, "day": day}
    return TaskInstance({**values, **person, "nights": str(nights), "guests": str(guests)}, checks)


def _trip(seed: int) -> TaskInstance:
    rng, found = _start("booking-trip", seed)
    values, departures = _day_of_crossings(rng, seed)
    best, person = min(departures, key=lambda one: one.cents), _person(rng)
    nights, guests, meal = rng.randint(2, 7), rng.randint(1, 2), rng.choice(MEALS[1:])
    room = _best_room(found, values["target"], guests)
    checks = (
        _ticket(lambda ticket: ticket.crossing == best.key),
        _ticket(lambda ticket: ticket.seat[-1] in "AF"),
        _ticket(lambda ticket: ticket.meal == meal),
        _ticket(lambda ticket: _is_for(ticket, person)),
        _stay(lambda stay: stay.room == room.id),
        _stay(lambda stay: stay.day == values["day"]),
        _stay(lambda stay: stay.nights == nights),
        _stay(lambda stay: stay.guests == guests),
        _stay(lambda stay: _is_for(stay, person)),
    )
    values |= {"time": best.time, "room": room.name, "house": room.house, "meal": meal}
    return TaskInstance({**values, **person, "nights": str(nights), "guests": str(guests)}, checks)


_HOST = "booking.test"
TASKS = (
    SiteTask(
        "booking-cheapest",
        _HOST,
        "When does the cheapest crossing from {origin} to {target} on {day} leave, and what does it cost?",
        ("It leaves at {time}.", "It costs {price}."),
        _cheapest,
    ),
    SiteTask(
        "booking-vessel",
        _HOST,
        "On the crossing from {origin} to {target} on {day} at {time}: which vessel sails, how many minutes does it "
        "take, and how many seats are free?",
        ("The vessel is the {vessel}.", "It takes {minutes} minutes.", "{free} seats are free."),
        _vessel,
    ),
    SiteTask(
        "booking-cancel",
        _HOST,
        "Cancel my crossing to {target}, and keep my other bookings.",
        ("The booking {code} to {target} is cancelled.", "The other bookings are kept."),
        _cancel,
    ),
    SiteTask(
        "booking-change",
        _HOST,
        "On my crossing to {target} on {day}, change the seat to {seat}. Leave everything else as it is.",
        (
            "The seat of the crossing to {target} is {seat}.",
            "It is still the same crossing.",
            "The other crossings are unchanged.",
            "No room was booked.",
        ),
        _change,
    ),
    SiteTask(
        "booking-ferry",
        _HOST,
        "Book seat {seat} on the crossing from {origin} to {target} on {day} at {time} for {name}, {email}, with the "
        "meal {meal}.",
        (
            "One seat was booked, and nothing was cancelled.",
            "It is on a crossing from {origin} to {target} on {day}.",
            "The crossing leaves at {time}.",
            "The seat is {seat}.",
            "It is booked for {name}, {email}.",
            "The meal is {meal}.",
        ),
        _ferry,
    ),
    SiteTask(
        "booking-room",
        _HOST,
        "Book the {room} of {house} in {town} for {nights} nights from {day}, for {guests} guests, under the name "
        "{name}, {email}.",
        (
            "The {room} of {house} is booked, once.",
            "The day of arrival is {day}.",
            "It is booked for {nights} nights.",
            "It is booked for {guests} guests.",
            "The name is {name}, the address {email}.",
        ),
        _room,
    ),
    SiteTask(
        "booking-trip",
        _HOST,
        "Plan a trip for {name}, {email}: book any window seat on the cheapest crossing from {origin} to {target} on "
        "{day}, with the meal {meal}; and from the same day on, for {nights} nights and {guests} guests, the cheapest "
        "room in {target} that sleeps as many and includes breakfast.",
        (
            "A seat is booked on the crossing at {time}, the cheapest.",
            "It is a window seat.",
            "The meal is {meal}.",
            "The seat is booked for {name}, {email}.",
            "The {room} of {house} is booked, the cheapest that fits.",
            "The day of arrival is {day}.",
            "The room is booked for {nights} nights.",
            "The room is booked for {guests} guests.",
            "The room is booked for {name}, {email}.",
        ),
        _trip,
    ),
)
