"""Solves the booking site's tasks."""

from __future__ import annotations

import re
from collections.abc import Generator

from webgym_cli.environments.fixture_sites.expert_driver import ActionPlan, ExpertDriver, Solver
from webgym_cli.records.webrl import AnyAction

_DEPARTURE = r"^(\d\d:\d\d)\t(\d+) min\t(.+)\t(\d+)\t€([\d,.]+)\t"
_ROOM = r"^(.+)\t(.+)\t(\d)\t(yes|no)\t€([\d,.]+)\t"


def _cents(price: str) -> int:
    return int(price.replace(",", "").replace(".", ""))


def _departures(driver: ExpertDriver) -> Generator[AnyAction, None, list[tuple[str, ...]]]:
    """Return time, minutes, vessel, free seats and price of the crossings of the day."""
    yield from driver.fill({"From": driver.asked["origin"], "To": driver.asked["target"], "Date": driver.asked["day"]})
    yield from driver.click("Find crossings", "button")
    return (yield from driver.read_all(_DEPARTURE))


def _ticket(driver: ExpertDriver, day: str = r"[\d-]+") -> Generator[AnyAction, None, str]:
    """Return the code of the earlier ticket to the target."""
    yield from driver.click("My bookings", "link")
    (code,) = yield from driver.read(rf"^(\S+)\t.+\t{re.escape(driver.asked['target'])}\t{day}\t")
    return code


def _book_seat(driver: ExpertDriver, time: str, seat: str) -> ActionPlan:
    """Book a seat (`window`: any free one at a window) from the list of crossings that is shown."""
    yield from driver.click(f"Choose {time}", "link")
    if seat == "window":
        ((seat,), *_) = yield from driver.read_all(r"(?<!\S)(\d[AF])(?! taken)(?!\S)")
    yield from driver.click(seat, "radio")
    yield from driver.click("Continue", "button")
    yield from driver.fill({"Full name": driver.asked["name"], "E-mail": driver.asked["email"]})
    yield from driver.type("Meal", driver.asked["meal"])
    yield from driver.click("I accept the terms of carriage", "checkbox")
    yield from driver.click("Book this seat", "button")


def _book_room(driver: ExpertDriver, house: str, room: str) -> ActionPlan:
    """Book a room from the list of rooms that is shown."""
    asked = driver.asked
    yield from driver.click(f"Book {house}, {room}", "link")
    yield from driver.fill(
        {
            "Arrival": asked["day"],
            "Nights": asked["nights"],
            "Guests": asked["guests"],
            "Full name": asked["name"],
            "E-mail": asked["email"],
        }
    )
    yield from driver.click("Book this room", "button")
    yield from driver.answer("done")


def _cheapest(driver: ExpertDriver) -> ActionPlan:
    found = yield from _departures(driver)
    best = min(found, key=lambda one: _cents(one[4]))
    yield from driver.answer(f"It leaves at {best[0]} and costs €{best[4]}.")


def _vessel(driver: ExpertDriver) -> ActionPlan:
    found = yield from _departures(driver)
    one = next(one for one in found if one[0] == driver.asked["time"])
    yield from driver.answer(f"{one[2]}, {one[1]} min, {one[3]} free seats")


def _cancel(driver: ExpertDriver) -> ActionPlan:
    code = yield from _ticket(driver)
    yield from driver.click(f"Cancel {code}", "link")
    yield from driver.click("Yes, cancel it", "button")
    yield from driver.answer("done")


def _change(driver: ExpertDriver) -> ActionPlan:
    code = yield from _ticket(driver, driver.asked["day"])
    yield from driver.click(f"Change seat of {code}", "link")
    yield from driver.click(driver.asked["seat"], "radio")
    yield from driver.click("Continue", "button")
    yield from driver.click("Change seat", "button")
    yield from driver.answer("done")


def _ferry(driver: ExpertDriver) -> ActionPlan:
    yield from _departures(driver)
    yield from _book_seat(driver, driver.asked["time"], driver.asked["seat"])
    yield from driver.answer("done")


def _room(driver: ExpertDriver) -> ActionPlan:
    yield from driver.click("Rooms", "link")
    yield from driver.click(driver.asked["town"], "link")
    yield from _book_room(driver, driver.asked["house"], driver.asked["room"])


def _trip(driver: ExpertDriver) -> ActionPlan:
    found = yield from _departures(driver)
    best = min(found, key=lambda one: _cents(one[4]))
    yield from _book_seat(driver, best[0], "window")
    yield from driver.click("Rooms", "link")
    yield from driver.click(driver.asked["target"], "link")
    rooms = yield from driver.read_all(_ROOM)
    fitting = [room for room in rooms if room[3] == "yes" and int(room[2]) >= int(driver.asked["guests"])]
    room = min(fitting, key=lambda one: _cents(one[4]))
    yield from _book_room(driver, room[0], room[1])


# The solver of each task.
SOLVERS: dict[str, Solver] = {
    "booking-cheapest": _cheapest,
    "booking-vessel": _vessel,
    "booking-cancel": _cancel,
    "booking-change": _change,
    "booking-ferry": _ferry,
    "booking-room": _room,
    "booking-trip": _trip,
}
