"""Solves the booking site's tasks."""

from __future__ import annotations

import re
from collections.abc import Generator

from webgym_cli.environments.fixture_sites.expert_driver import Hands, Plan, Solver
from webgym_cli.records.webrl import AnyAction

_DEPARTURE = r"^(\d\d:\d\d)\t(\d+) min\t(.+)\t(\d+)\t€([\d,.]+)\t"
_ROOM = r"^(.+)\t(.+)\t(\d)\t(yes|no)\t€([\d,.]+)\t"


def _cents(price: str) -> int:
    return int(price.replace(",", "").replace(".", ""))


def _departures(hands: Hands) -> Generator[AnyAction, None, list[tuple[str, ...]]]:
    """Return time, minutes, vessel, free seats and price of the crossings of the day."""
    yield from hands.fill({"From": hands.asked["origin"], "To": hands.asked["target"], "Date": hands.asked["day"]})
    yield from hands.click("Find crossings", "button")
    return (yield from hands.read_all(_DEPARTURE))


def _ticket(hands: Hands, day: str = r"[\d-]+") -> Generator[AnyAction, None, str]:
    """Return the code of the earlier ticket to the target."""
    yield from hands.click("My bookings", "link")
    (code,) = yield from hands.read(rf"^(\S+)\t.+\t{re.escape(hands.asked['target'])}\t{day}\t")
    return code


def _book_seat(hands: Hands, time: str, seat: str) -> Plan:
    """Book a seat (`window`: any free one at a window) from the list of crossings that is shown."""
    yield from hands.click(f"Choose {time}", "link")
    if seat == "window":
        ((seat,), *_) = yield from hands.read_all(r"(?<!\S)(\d[AF])(?! taken)(?!\S)")
    yield from hands.click(seat, "radio")
    yield from hands.click("Continue", "button")
    yield from hands.fill({"Full name": hands.asked["name"], "E-mail": hands.asked["email"]})
    yield from hands.type("Meal", hands.asked["meal"])
    yield from hands.click("I accept the terms of carriage", "checkbox")
    yield from hands.click("Book this seat", "button")


def _book_room(hands: Hands, house: str, room: str) -> Plan:
    """Book a room from the list of rooms that is shown."""
    asked = hands.asked
    yield from hands.click(f"Book {house}, {room}", "link")
    yield from hands.fill(
        {
            "Arrival": asked["day"],
            "Nights": asked["nights"],
            "Guests": asked["guests"],
            "Full name": asked["name"],
            "E-mail": asked["email"],
        }
    )
    yield from hands.click("Book this room", "button")
    yield from hands.answer("done")


def _cheapest(hands: Hands) -> Plan:
    found = yield from _departures(hands)
    best = min(found, key=lambda one: _cents(one[4]))
    yield from hands.answer(f"It leaves at {best[0]} and costs €{best[4]}.")


def _vessel(hands: Hands) -> Plan:
    found = yield from _departures(hands)
    one = next(one for one in found if one[0] == hands.asked["time"])
    yield from hands.answer(f"{one[2]}, {one[1]} min, {one[3]} free seats")


def _cancel(hands: Hands) -> Plan:
    code = yield from _ticket(hands)
    yield from hands.click(f"Cancel {code}", "link")
    yield from hands.click("Yes, cancel it", "button")
    yield from hands.answer("done")


def _change(hands: Hands) -> Plan:
    code = yield from _ticket(hands, hands.asked["day"])
    yield from hands.click(f"Change seat of {code}", "link")
    yield from hands.click(hands.asked["seat"], "radio")
    yield from hands.click("Continue", "button")
    yield from hands.click("Change seat", "button")
    yield from hands.answer("done")


def _ferry(hands: Hands) -> Plan:
    yield from _departures(hands)
    yield from _book_seat(hands, hands.asked["time"], hands.asked["seat"])
    yield from hands.answer("done")


def _room(hands: Hands) -> Plan:
    yield from hands.click("Rooms", "link")
    yield from hands.click(hands.asked["town"], "link")
    yield from _book_room(hands, hands.asked["house"], hands.asked["room"])


def _trip(hands: Hands) -> Plan:
    found = yield from _departures(hands)
    best = min(found, key=lambda one: _cents(one[4]))
    yield from _book_seat(hands, best[0], "window")
    yield from hands.click("Rooms", "link")
    yield from hands.click(hands.asked["target"], "link")
    rooms = yield from hands.read_all(_ROOM)
    fitting = [room for room in rooms if room[3] == "yes" and int(room[2]) >= int(hands.asked["guests"])]
    room = min(fitting, key=lambda one: _cents(one[4]))
    yield from _book_room(hands, room[0], room[1])


SOLVERS: dict[str, Solver] = {
    "booking-cheapest": _cheapest,
    "booking-vessel": _vessel,
    "booking-cancel": _cancel,
    "booking-change": _change,
    "booking-ferry": _ferry,
    "booking-room": _room,
    "booking-trip": _trip,
}
"""The solver of each task."""
