from __future__ import annotations

import pytest

from webgym_cli.environments.fixture_sites.booking import (
    BookingState,
    crossings,
    find_crossing,
    harbour,
    new_booking_state,
    seats,
)


def crossing_of(visitor):
    values = visitor.values
    found = crossings(visitor.live.seed, values["origin"], values["target"], values["day"])
    return next(one for one in found if one.time == values["time"])


async def booked(visit, **changes: str):
    visitor = visit("booking-ferry", 3)
    values = visitor.values
    form = {name: values[name] for name in ("seat", "name", "email", "meal")} | {"terms": "yes"} | changes
    page = await visitor.post(f"/passenger/{form.pop('key', crossing_of(visitor).key)}", **form)
    return visitor, page


async def test_crossings_are_listed_as_the_seed_has_them(visit):
    visitor = visit("booking-vessel", 1)
    values = visitor.values
    query = f"from={values['origin']}&to={values['target']}&date={values['day']}"
    page = await visitor.get(f"/crossings?{query}")
    found = crossings(1, values["origin"], values["target"], values["day"])
    assert 3 <= len(found) <= 5
    for one in found:
        free = len(BookingState(1).free(one))
        assert f"{one.time} {one.minutes} min {one.vessel} {free} {one.price} Choose" in page.text
    assert [one.time for one in found] == sorted(one.time for one in found)
    assert len({one.cents for one in found}) == len(found)
    assert (await visitor.get(f"/seats/{found[0].key}")).text.count("taken") == len(found[0].taken)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"date": ""}, "Please choose a date."),
        ({"date": "tomorrow"}, "Please choose a date."),
        ({"date": "1999-01-01"}, "can be booked."),
        ({"to": None}, "Please choose two different ports."),
        ({"to": "Atlantis"}, "There is no such crossing."),
    ],
)
async def test_a_search_that_makes_no_sense_is_explained(visit, change, message):
    visitor = visit("booking-vessel", 1)
    values = visitor.values
    asked = {"from": values["origin"], "to": values["target"], "date": values["day"]} | change
    asked["to"] = asked["to"] or asked["from"]
    page = await visitor.get("/crossings?" + "&".join(f"{name}={value}" for name, value in asked.items()))
    assert page.status == 422
    assert message in page.text


async def test_booking_a_seat(visit):
    visitor, page = await booked(visit)
    assert visitor.score("done") == 1.0
    confirmed = await visitor.get(page.location)
    code = page.location.partition("new=")[2]
    assert f"Your booking {code} is confirmed." in confirmed.text
    assert visitor.values["seat"] in confirmed.text
    assert visitor.values["seat"] not in visitor.state.free(crossing_of(visitor))
    again = await visitor.post(f"/passenger/{crossing_of(visitor).key}", seat=visitor.values["seat"])
    assert again.status == 422 and "no longer free" in again.text


async def test_near_misses_of_a_seat(visit):
    visitor = visit("booking-ferry", 3)
    one = crossing_of(visitor)
    another_time = next(other for other in crossings(3, one.origin, one.target, one.day) if other.time != one.time)
    seat = next(seat for seat in BookingState(3).free(one) if seat != visitor.values["seat"])
    meal = "Fish" if visitor.values["meal"] == "Vegetarian" else "Vegetarian"
    shared = next(seat for seat in seats() if seat in BookingState(3).free(another_time))
    for changes, unmet in (
        ({"seat": seat}, ["The seat is"]),
        ({"meal": meal}, ["The meal is"]),
        ({"email": "else@mail.example"}, ["It is booked for"]),
        ({"key": another_time.key, "seat": shared}, ["The crossing leaves at"]),
    ):
        missed, page = await booked(visit, **changes)
        assert page.status == 303
        score, reason = missed.live.score("done")
        assert score == 0.0
        assert all(fact in reason for fact in unmet)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "Please fill in the name."),
        ({"name": "x" * 101}, "100 characters at most"),
        ({"email": "nobody"}, "Please give an address like"),
        ({"meal": "Steak"}, "Please choose a meal."),
        ({"terms": ""}, "Please accept the terms."),
        ({"seat": "99Z"}, "no longer free"),
    ],
)
async def test_a_bad_booking_is_refused(visit, changes, message):
    visitor, page = await booked(visit, **changes)
    assert page.status == 422
    assert message in page.text
    assert len(visitor.state.tickets) == 3


@pytest.mark.parametrize("key", ["nothing", "a_b_c_d", "A_B_2027-01-01_0800", "a_b_c_d_e"])
async def test_a_crossing_that_does_not_exist_is_not_found(visit, key):
    visitor = visit("booking-ferry", 3)
    for path in (f"/seats/{key}", f"/passenger/{key}?seat=1A", "/room/999", "/seat/XX-1", "/cancel/XX-1"):
        assert (await visitor.get(path)).status == 404


async def test_cancelling_asks_first_and_keeps_the_others(visit):
    visitor = visit("booking-cancel", 2)
    code = visitor.values["code"]
    assert "Yes, cancel it" in (await visitor.get(f"/cancel/{code}")).text
    assert visitor.score("done") == 0.0
    await visitor.post(f"/cancel/{code}")
    assert visitor.score("done") == 1.0
    assert "cancelled" in (await visitor.get("/bookings")).text
    assert (await visitor.get(f"/cancel/{code}")).status == 404
    other = next(one.code for one in visitor.state.tickets if one.code != code)
    await visitor.post(f"/cancel/{other}")
    assert visitor.live.score("done") == (0.0, "not met: The other bookings are kept.")


async def test_changing_a_seat(visit):
    visitor = visit("booking-change", 2)
    values = visitor.values
    ticket = next(one for one in visitor.state.tickets if f"_{values['target']}_{values['day']}_" in one.crossing)
    crossing = find_crossing(2, ticket.crossing)
    taken = next(iter(crossing.taken))
    assert "Please choose a free seat." in (await visitor.get(f"/seat/{ticket.code}?seat={taken}")).text
    assert (await visitor.post(f"/seat/{ticket.code}", seat=taken)).status == 404
    asked = await visitor.get(f"/seat/{ticket.code}?seat={values['seat']}")
    assert f"From {ticket.seat} to {values['seat']}" in asked.text
    assert visitor.score("done") == 0.0
    await visitor.post(f"/seat/{ticket.code}", seat=values["seat"])
    assert visitor.score("done") == 1.0


async def room_booked(visit, **changes: str):
    visitor = visit("booking-room", 1)
    values = visitor.values
    room = next(one for one in harbour(1).rooms if (one.house, one.name) == (values["house"], values["room"]))
    form = {name: values[name] for name in ("day", "nights", "guests", "name", "email")} | changes
    return visitor, await visitor.post(f"/room/{form.pop('room', room.id)}", **form)


async def test_booking_a_room(visit):
    visitor, page = await room_booked(visit)
    assert visitor.score("done") == 1.0
    assert visitor.values["house"] in (await visitor.get(page.location)).text
    for changes in ({"nights": "1"}, {"name": "Else"}, {"day": harbour(1).day(0)}, {"room": "0"}):
        missed, _ = await room_booked(visit, **changes)
        assert missed.score("done") == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"day": "2027-13-01"}, "Please choose a date."),
        ({"day": "2020-01-01"}, "can be booked."),
        ({"nights": "22"}, "Nights is a whole number from 1 to 21."),
        ({"guests": "5"}, "guests is a whole number"),
        ({"email": ""}, "Please give an address like"),
    ],
)
async def test_a_bad_room_booking_is_refused(visit, changes, message):
    visitor, page = await room_booked(visit, **changes)
    assert (page.status, visitor.state.stays) == (422, [])
    assert message in page.text


def test_every_seed_has_earlier_tickets_on_different_routes_and_a_fitting_room_in_each_town():
    for seed in range(60):
        tickets = new_booking_state(seed).tickets
        assert len({ticket.crossing.split("_")[1] for ticket in tickets}) == len(tickets) == 3
        assert len({ticket.code for ticket in tickets}) == 3
        for town in harbour(seed).ports:
            assert any(room.breakfast and room.sleeps >= 2 for room in harbour(seed).rooms if room.town == town)
        found = crossings(seed, *harbour(seed).ports[:2], harbour(seed).day(9))
        assert all({"A", "F"} & {seat[-1] for seat in BookingState(seed).free(one)} for one in found)


def test_there_are_no_crossings_outside_of_the_season():
    found = harbour(0)
    one, other = found.ports[:2]
    assert crossings(0, one, other, found.last_day.isoformat())
    assert crossings(0, one, other, "2030-01-01") == ()
    assert crossings(0, one, one, found.day(1)) == ()
