"""Pages of the booking site: crossings with seats, rooms, and bookings."""

from __future__ import annotations

import re
from datetime import date

from webgym_cli.environments.fixture_sites import booking
from webgym_cli.environments.fixture_sites.booking import (
    MEALS,
    BookingState,
    Crossing,
    FerryTicket,
    Room,
    Stay,
    crossings,
    find_crossing,
    harbour,
    new_booking_state,
)
from webgym_cli.environments.fixture_sites.web import (
    MissingPageError,
    SitePages,
    SiteRequest,
    SiteResponse,
    list_errors,
    parse_whole,
    redirect,
    require,
)

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_MOST_NIGHTS, _LONGEST_NAME = 21, 100
_NOT_FREE = ("Please choose a free seat.",)
PAGES: SitePages[BookingState] = SitePages(
    booking,
    harbour,
    new_booking_state,
    {
        "crossing": lambda state, key: find_crossing(state.seed, key),
        "room": lambda state, number: harbour(state.seed).room(number),
        "ticket": BookingState.ticket,
    },
)
PAGES.show("/", "home")
PAGES.show("/seats/{crossing}", "seats")
PAGES.show("/rooms", "rooms")
PAGES.show("/room/{room}", "room")
PAGES.show("/bookings", "bookings")
PAGES.show("/cancel/{ticket}", "cancel")


def _day_errors(state: BookingState, text: str) -> list[str]:
    """Return the errors of a day; empty if it can be booked."""
    port = harbour(state.seed)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return ["Please choose a date."]
    bookable = port.first_day <= day <= port.last_day
    return [] if bookable else [f"Dates from {port.first_day} to {port.last_day} can be booked."]


def _person_errors(name: str, email: str) -> list[str]:
    return list_errors(
        (name, "Please fill in the name."),
        (len(name) <= _LONGEST_NAME, f"A name has {_LONGEST_NAME} characters at most."),
        (_EMAIL.fullmatch(email), "Please give an address like name@post.example."),
    )


@PAGES.get("/crossings")
def _crossings(state: BookingState, request: SiteRequest) -> SiteResponse:
    origin, target, day = (request.query.get(name, "") for name in ("from", "to", "date"))
    errors = ["Please choose two different ports."] if origin == target else _day_errors(state, day)
    offers = crossings(state.seed, origin, target, day)
    if errors or not offers:
        return PAGES.page("home", state, request, errors=errors or ["There is no such crossing."])
    return PAGES.page("crossings", state, request, offers=offers)


@PAGES.get("/passenger/{crossing}")
def _passenger(state: BookingState, request: SiteRequest) -> SiteResponse:
    seat = request.query.get("seat", "")
    if seat not in state.free(request.parts["crossing"]):
        return PAGES.page("seats", state, request, errors=_NOT_FREE)
    return PAGES.page("passenger", state, request, seat=seat)


@PAGES.post("/passenger/{crossing}")
def _book_seat(state: BookingState, request: SiteRequest) -> SiteResponse:
    crossing: Crossing = request.parts["crossing"]
    name, email, meal, seat = map(request.field, ("name", "email", "meal", "seat"))
    if seat not in state.free(crossing):
        return PAGES.page("seats", state, request, errors=["This seat is no longer free."])
    errors = _person_errors(name, email) + list_errors(
        (meal in MEALS, "Please choose a meal."), (request.field("terms"), "Please accept the terms.")
    )
    if errors:
        return PAGES.page("passenger", state, request, seat=seat, errors=errors)
    ticket = FerryTicket(state.next_code(), name, email, crossing.key, seat, meal)
    state.tickets.append(ticket)
    return redirect(f"/bookings?new={ticket.code}")


@PAGES.post("/room/{room}")
def _book_room(state: BookingState, request: SiteRequest) -> SiteResponse:
    room: Room = request.parts["room"]
    day, name, email = map(request.field, ("day", "name", "email"))
    nights = parse_whole(request.field("nights"), 1, _MOST_NIGHTS)
    guests = parse_whole(request.field("guests"), 1, room.sleeps)
    errors = _person_errors(name, email) + _day_errors(state, day)
    errors += list_errors(
        (nights, f"Nights is a whole number from 1 to {_MOST_NIGHTS}."),
        (guests, f"This room sleeps {room.sleeps}: guests is a whole number from 1 to {room.sleeps}."),
    )
    if errors or nights is None or guests is None:
        return PAGES.page("room", state, request, errors=errors)
    stay = Stay(state.next_code(), name, email, room.id, day, nights, guests)
    state.stays.append(stay)
    return redirect(f"/bookings?new={stay.code}")


@PAGES.post("/cancel/{ticket}")
def _cancel(state: BookingState, request: SiteRequest) -> SiteResponse:
    request.parts["ticket"].cancelled = True
    return redirect("/bookings")


def _is_free(state: BookingState, ticket: FerryTicket, seat: str) -> bool:
    return seat in state.free(require(find_crossing(state.seed, ticket.crossing)))


@PAGES.get("/seat/{ticket}")
def _other_seat(state: BookingState, request: SiteRequest) -> SiteResponse:
    seat = request.query.get("seat")
    if seat is None or not _is_free(state, request.parts["ticket"], seat):
        return PAGES.page("seats", state, request, errors=() if seat is None else _NOT_FREE)
    return PAGES.page("other-seat", state, request, seat=seat)


@PAGES.post("/seat/{ticket}")
def _change_seat(state: BookingState, request: SiteRequest) -> SiteResponse:
    ticket: FerryTicket = request.parts["ticket"]
    if not _is_free(state, ticket, request.field("seat")):
        raise MissingPageError
    ticket.seat = request.field("seat")
    return redirect("/bookings")
