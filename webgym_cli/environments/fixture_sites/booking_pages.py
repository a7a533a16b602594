"""The booking site's pages: crossings with seats, rooms, and what was booked."""

from __future__ import annotations

import re
from datetime import date

from webgym_cli.environments.fixture_sites.booking import (
    LETTERS,
    MEALS,
    ROWS,
    BookingState,
    Crossing,
    FerryTicket,
    Room,
    Stay,
    crossings,
    find_crossing,
    harbour,
)
from webgym_cli.environments.fixture_sites.web import (
    MissingPageError,
    SitePages,
    SiteRequest,
    SiteResponse,
    parse_whole,
    redirect,
    require,
)

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_MOST_NIGHTS, _LONGEST_NAME = 21, 100
PAGES: SitePages[BookingState] = SitePages(
    "booking", harbour, meals=MEALS, rows=range(1, ROWS + 1), letters=LETTERS, find_crossing=find_crossing
)
answer = PAGES.answer


def _day_errors(state: BookingState, text: str) -> list[str]:
    """Return what is wrong with a day; nothing when it can be booked."""
    port = harbour(state.seed)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return ["Please choose a date."]
    bookable = port.first_day <= day <= port.last_day
    return [] if bookable else [f"Dates from {port.first_day} to {port.last_day} can be booked."]


def _person_errors(given: dict[str, str]) -> list[str]:
    errors = []
    if not given["name"]:
        errors.append("Please fill in the name.")
    if len(given["name"]) > _LONGEST_NAME:
        errors.append(f"A name has {_LONGEST_NAME} characters at most.")
    if not _EMAIL.fullmatch(given["email"]):
        errors.append("Please give an address like name@post.example.")
    return errors


@PAGES.get("/")
def _home(state: BookingState, request: SiteRequest) -> SiteResponse:
    return PAGES.page("home", state, given={"from": "", "to": "", "date": ""})


@PAGES.get("/crossings")
def _crossings(state: BookingState, request: SiteRequest) -> SiteResponse:
    given = {name: request.query.get(name, "") for name in ("from", "to", "date")}
    errors = _day_errors(state, given["date"])
    if given["from"] == given["to"]:
        errors = ["Please choose two different ports."]
    offers = crossings(state.seed, given["from"], given["to"], given["date"])
    if errors or not offers:
        return PAGES.page("home", state, given=given, errors=errors or ["There is no such crossing."])
    return PAGES.page("crossings", state, given=given, offers=offers)


def _find_crossing(state: BookingState, request: SiteRequest) -> Crossing:
    return require(find_crossing(state.seed, request.parts["key"]))


def _choose_seat(
    state: BookingState, crossing: Crossing, *errors: str, ticket: FerryTicket | None = None
) -> SiteResponse:
    """Return the map of seats: for a new ticket, or to change the seat of one."""
    return PAGES.page("seats", state, crossing=crossing, ticket=ticket, free=set(state.free(crossing)), errors=errors)


@PAGES.get("/seats/{key}")
def _seats(state: BookingState, request: SiteRequest) -> SiteResponse:
    return _choose_seat(state, _find_crossing(state, request))


@PAGES.get("/passenger/{key}")
def _passenger(state: BookingState, request: SiteRequest) -> SiteResponse:
    crossing = _find_crossing(state, request)
    seat = request.query.get("seat", "")
    if seat not in state.free(crossing):
        return _choose_seat(state, crossing, "Please choose a free seat.")
    given = {"name": "", "email": "", "meal": MEALS[0], "terms": ""}
    return PAGES.page("passenger", state, crossing=crossing, seat=seat, given=given)


@PAGES.post("/passenger/{key}")
def _book_seat(state: BookingState, request: SiteRequest) -> SiteResponse:
    crossing = _find_crossing(state, request)
    given = {name: request.field(name) for name in ("name", "email", "meal", "terms")}
    seat = request.field("seat")
    if seat not in state.free(crossing):
        return _choose_seat(state, crossing, "This seat is no longer free.")
    errors = _person_errors(given)
    if given["meal"] not in MEALS:
        errors.append("Please choose a meal.")
    if not given["terms"]:
        errors.append("Please accept the terms.")
    if errors:
        return PAGES.page("passenger", state, crossing=crossing, seat=seat, given=given, errors=errors)
    ticket = FerryTicket(state.next_code(), given["name"], given["email"], crossing.key, seat, given["meal"])
    state.tickets.append(ticket)
    return redirect(f"/bookings?new={ticket.code}")


@PAGES.get("/rooms")
def _rooms(state: BookingState, request: SiteRequest) -> SiteResponse:
    town = request.query.get("town", "")
    rooms = [room for room in harbour(state.seed).rooms if room.town == town]
    return PAGES.page("rooms", state, town=town, rooms=sorted(rooms, key=lambda room: (room.house, room.id)))


def _find_room(state: BookingState, request: SiteRequest) -> Room:
    return require(harbour(state.seed).room(request.parts["id"]))


@PAGES.get("/room/{id}")
def _room(state: BookingState, request: SiteRequest) -> SiteResponse:
    given = {"day": "", "nights": "1", "guests": "1", "name": "", "email": ""}
    return PAGES.page("room", state, room=_find_room(state, request), given=given)


@PAGES.post("/room/{id}")
def _book_room(state: BookingState, request: SiteRequest) -> SiteResponse:
    room = _find_room(state, request)
    given = {name: request.field(name) for name in ("day", "nights", "guests", "name", "email")}
    errors = _person_errors(given) + _day_errors(state, given["day"])
    nights, guests = parse_whole(given["nights"], 1, _MOST_NIGHTS), parse_whole(given["guests"], 1, room.sleeps)
    if nights is None:
        errors.append(f"Nights is a whole number from 1 to {_MOST_NIGHTS}.")
    if guests is None:
        errors.append(f"This room sleeps {room.sleeps}: guests is a whole number from 1 to {room.sleeps}.")
    if errors or nights is None or guests is None:
        return PAGES.page("room", state, room=room, given=given, errors=errors)
    stay = Stay(state.next_code(), given["name"], given["email"], room.id, given["day"], nights, guests)
    state.stays.append(stay)
    return redirect(f"/bookings?new={stay.code}")


@PAGES.get("/bookings")
def _bookings(state: BookingState, request: SiteRequest) -> SiteResponse:
    return PAGES.page("bookings", state, new=request.query.get("new", ""))


def _find_ticket(state: BookingState, request: SiteRequest) -> tuple[FerryTicket, Crossing]:
    """Return a ticket that is not cancelled, and its crossing."""
    ticket = require(state.ticket(request.parts["code"]))
    if ticket.cancelled:
        raise MissingPageError
    return ticket, require(find_crossing(state.seed, ticket.crossing))


@PAGES.get("/cancel/{code}")
def _ask_cancel(state: BookingState, request: SiteRequest) -> SiteResponse:
    ticket, crossing = _find_ticket(state, request)
    return PAGES.page("cancel", state, ticket=ticket, crossing=crossing)


@PAGES.post("/cancel/{code}")
def _cancel(state: BookingState, request: SiteRequest) -> SiteResponse:
    require(state.ticket(request.parts["code"])).cancelled = True
    return redirect("/bookings")


@PAGES.get("/seat/{code}")
def _other_seat(state: BookingState, request: SiteRequest) -> SiteResponse:
    ticket, crossing = _find_ticket(state, request)
    seat = request.query.get("seat")
    if seat is None:
        return _choose_seat(state, crossing, ticket=ticket)
    if seat not in state.free(crossing):
        return _choose_seat(state, crossing, "Please choose a free seat.", ticket=ticket)
    return PAGES.page("other-seat", state, ticket=ticket, crossing=crossing, seat=seat)


@PAGES.post("/seat/{code}")
def _change_seat(state: BookingState, request: SiteRequest) -> SiteResponse:
    ticket = require(state.ticket(request.parts["code"]))
    crossing = require(find_crossing(state.seed, ticket.crossing))
    if request.field("seat") not in state.free(crossing):
        raise MissingPageError
    ticket.seat = request.field("seat")
    return redirect("/bookings")
