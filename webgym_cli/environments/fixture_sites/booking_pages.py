"""The booking site's pages: crossings with seats, rooms, and what was booked."""

from __future__ import annotations

import re
from datetime import date
from typing import Any
from urllib.parse import urlencode

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
    Route,
    SiteRequest,
    SiteResponse,
    dispatch,
    not_found_page,
    parse_whole,
    redirect,
    render_page,
)

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_MOST_NIGHTS, _LONGEST_NAME = 21, 100


def answer(state: BookingState, request: SiteRequest) -> SiteResponse:
    """Answer a request to the booking site."""
    return dispatch(_ROUTES, state, request)


def _site(template: str, state: BookingState, status: int = 200, /, **values: Any) -> SiteResponse:
    return render_page(f"booking/{template}.html", status, harbour=harbour(state.seed), **values)


def _day_error(state: BookingState, text: str) -> str:
    """Return what is wrong with a day; empty when it can be booked."""
    found = harbour(state.seed)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return "Please choose a date."
    if not found.first_day <= day <= found.last_day:
        return f"Dates from {found.first_day} to {found.last_day} can be booked."
    return ""


def _person_errors(given: dict[str, str]) -> list[str]:
    errors = []
    if not given["name"]:
        errors.append("Please fill in the name.")
    if len(given["name"]) > _LONGEST_NAME:
        errors.append(f"A name has {_LONGEST_NAME} characters at most.")
    if not _EMAIL.fullmatch(given["email"]):
        errors.append("Please give an address like name@post.example.")
    return errors


def _home(state: BookingState, request: SiteRequest) -> SiteResponse:
    return _site("home", state, given={"from": "", "to": "", "date": ""}, error="")


def _crossings(state: BookingState, request: SiteRequest) -> SiteResponse:
    given = {name: request.query.get(name, "") for name in ("from", "to", "date")}
    error = _day_error(state, given["date"])
    if given["from"] == given["to"]:
        error = "Please choose two different ports."
    found = crossings(state.seed, given["from"], given["to"], given["date"])
    if error or not found:
        return _site("home", state, 422, given=given, error=error or "There is no such crossing.")
    return _site("crossings", state, given=given, rows=[(one, len(state.free(one))) for one in found])


def _seats(state: BookingState, request: SiteRequest) -> SiteResponse:
    crossing = find_crossing(state.seed, request.parts["key"])
    if crossing is None:
        return not_found_page()
    return _seat_map(state, crossing, f"/passenger/{crossing.key}", "", "")


def _seat_map(state: BookingState, crossing: Crossing, target: str, chosen: str, error: str) -> SiteResponse:
    return _site(
        "seats",
        state,
        422 if error else 200,
        crossing=crossing,
        free=set(state.free(crossing)),
        rows=range(1, ROWS + 1),
        letters=LETTERS,
        target=target,
        chosen=chosen,
        error=error,
    )


def _passenger(state: BookingState, request: SiteRequest) -> SiteResponse:
    crossing = find_crossing(state.seed, request.parts["key"])
    if crossing is None:
        return not_found_page()
    seat = request.query.get("seat", "")
    if seat not in state.free(crossing):
        return _seat_map(state, crossing, f"/passenger/{crossing.key}", "", "Please choose a free seat.")
    given = {"name": "", "email": "", "meal": MEALS[0], "terms": ""}
    return _passenger_form(state, crossing, seat, given, [])


def _passenger_form(
    state: BookingState, crossing: Crossing, seat: str, given: dict[str, str], errors: list[str]
) -> SiteResponse:
    status = 422 if errors else 200
    return _site("passenger", state, status, crossing=crossing, seat=seat, given=given, meals=MEALS, errors=errors)


def _book_seat(state: BookingState, request: SiteRequest) -> SiteResponse:
    crossing = find_crossing(state.seed, request.parts["key"])
    if crossing is None:
        return not_found_page()
    given = {name: request.field(name) for name in ("name", "email", "meal", "terms")}
    seat = request.field("seat")
    if seat not in state.free(crossing):
        return _seat_map(state, crossing, f"/passenger/{crossing.key}", "", "This seat is no longer free.")
    errors = _person_errors(given)
    if given["meal"] not in MEALS:
        errors.append("Please choose a meal.")
    if not given["terms"]:
        errors.append("Please accept the terms.")
    if errors:
        return _passenger_form(state, crossing, seat, given, errors)
    ticket = FerryTicket(state.next_code(), crossing.key, seat, given["name"], given["email"], given["meal"])
    state.tickets.append(ticket)
    return redirect(f"/bookings?new={ticket.code}")


def _rooms(state: BookingState, request: SiteRequest) -> SiteResponse:
    found = harbour(state.seed)
    town = request.query.get("town", "")
    rooms = sorted((room for room in found.rooms if room.town == town), key=lambda room: (room.house, room.id))
    towns = [(port, f"/rooms?{urlencode({'town': port})}", port == town) for port in found.ports]
    return _site("rooms", state, town=town, towns=towns, rooms=rooms)


def _room(state: BookingState, request: SiteRequest) -> SiteResponse:
    room = harbour(state.seed).room(request.parts["id"])
    if room is None:
        return not_found_page()
    given = {"day": "", "nights": "1", "guests": "1", "name": "", "email": ""}
    return _room_form(state, room, given, [])


def _room_form(state: BookingState, room: Room, given: dict[str, str], errors: list[str]) -> SiteResponse:
    return _site("room", state, 422 if errors else 200, room=room, given=given, errors=errors)


def _book_room(state: BookingState, request: SiteRequest) -> SiteResponse:
    room = harbour(state.seed).room(request.parts["id"])
    if room is None:
        return not_found_page()
    given = {name: request.field(name) for name in ("day", "nights", "guests", "name", "email")}
    errors = _person_errors(given)
    if wrong := _day_error(state, given["day"]):
        errors.append(wrong)
    nights, guests = parse_whole(given["nights"], 1, _MOST_NIGHTS), parse_whole(given["guests"], 1, room.sleeps)
    if nights is None:
        errors.append(f"Nights is a whole number from 1 to {_MOST_NIGHTS}.")
    if guests is None:
        errors.append(f"This room sleeps {room.sleeps}: guests is a whole number from 1 to {room.sleeps}.")
    if errors or nights is None or guests is None:
        return _room_form(state, room, given, errors)
    stay = Stay(state.next_code(), room.id, given["day"], nights, guests, given["name"], given["email"])
    state.stays.append(stay)
    return redirect(f"/bookings?new={stay.code}")


def _bookings(state: BookingState, request: SiteRequest) -> SiteResponse:
    found = harbour(state.seed)
    return _site(
        "bookings",
        state,
        new=request.query.get("new", ""),
        tickets=[(ticket, find_crossing(state.seed, ticket.crossing)) for ticket in state.tickets],
        stays=[(stay, found.room(stay.room)) for stay in state.stays],
    )


def _ask_cancel(state: BookingState, request: SiteRequest) -> SiteResponse:
    ticket = state.ticket(request.parts["code"])
    if ticket is None or ticket.cancelled:
        return not_found_page()
    return _site("cancel", state, ticket=ticket, crossing=find_crossing(state.seed, ticket.crossing))


def _cancel(state: BookingState, request: SiteRequest) -> SiteResponse:
    ticket = state.ticket(request.parts["code"])
    if ticket is None:
        return not_found_page()
    ticket.cancelled = True
    return redirect("/bookings")


def _other_seat(state: BookingState, request: SiteRequest) -> SiteResponse:
    ticket = state.ticket(request.parts["code"])
    crossing = find_crossing(state.seed, ticket.crossing) if ticket else None
    if ticket is None or crossing is None or ticket.cancelled:
        return not_found_page()
    if "seat" not in request.query:
        return _seat_map(state, crossing, f"/seat/{ticket.code}", ticket.seat, "")
    seat = request.query["seat"]
    if seat not in state.free(crossing):
        return _seat_map(state, crossing, f"/seat/{ticket.code}", ticket.seat, "Please choose a free seat.")
    return _site("other-seat", state, ticket=ticket, crossing=crossing, seat=seat)


def _change_seat(state: BookingState, request: SiteRequest) -> SiteResponse:
    ticket = state.ticket(request.parts["code"])
    crossing = find_crossing(state.seed, ticket.crossing) if ticket else None
    if ticket is None or crossing is None or request.field("seat") not in state.free(crossing):
        return not_found_page()
    ticket.seat = request.field("seat")
    return redirect("/bookings")


_ROUTES: tuple[Route[BookingState], ...] = (
    ("GET", "/", _home),
    ("GET", "/crossings", _crossings),
    ("GET", "/seats/{key}", _seats),
    ("GET", "/passenger/{key}", _passenger),
    ("POST", "/passenger/{key}", _book_seat),
    ("GET", "/rooms", _rooms),
    ("GET", "/room/{id}", _room),
    ("POST", "/room/{id}", _book_room),
    ("GET", "/bookings", _bookings),
    ("GET", "/cancel/{code}", _ask_cancel),
    ("POST", "/cancel/{code}", _cancel),
    ("GET", "/seat/{code}", _other_seat),
    ("POST", "/seat/{code}", _change_seat),
)
