from __future__ import annotations

import re

import pytest

from webgym_cli.environments.fixture_sites.wiki import encyclopedia


def form(state, title: str) -> dict[str, str]:
    return dict(state.facts(encyclopedia(state.seed).find(title)))


async def test_every_article_has_its_page_and_its_links_lead_somewhere(visit):
    visitor = visit("wiki-river", 1)
    links = set()
    for article in encyclopedia(1).articles:
        page = await visitor.get("/wiki/" + article.title.replace(" ", "_"))
        assert page.status == 200
        for _, value in article.facts:
            assert all(part in page.text for part in value.split(", "))
        links |= set(re.findall(r'href="(/wiki/[^"]+)"', page.body))
    assert len(links) > 20
    for link in links:
        assert (await visitor.get(link)).status == 200


async def test_the_search_goes_straight_to_a_title_and_lists_mentions(visit):
    visitor = visit("wiki-mayor", 1)
    values = visitor.values
    exact = await visitor.get(f"/search?q={values['mayor'].lower().replace(' ', '+')}")
    assert exact.location == "/wiki/" + values["mayor"].replace(" ", "_")
    hits = await visitor.get(f"/search?q=born+{values['birthplace']}")
    assert values["mayor"] in hits.text
    assert "There is no article" in (await visitor.get("/search?q=zzz")).text
    assert "There is no article" in (await visitor.get("/search")).text
    missing = await visitor.get("/wiki/<script>")
    assert missing.status == 404
    assert "<script>" not in missing.body


async def test_lists_sort_numbers_by_size(visit):
    visitor = visit("wiki-largest", 1)
    found = re.findall(r"<td>([\d,]+)</td>", (await visitor.get("/list/cities?sort=Population")).body)
    numbers = [int(text.replace(",", "")) for text in found]
    assert len(numbers) == len(encyclopedia(1).of("city"))
    assert numbers == sorted(numbers)
    assert (await visitor.get("/list/planets")).status == 404


async def test_watching_and_unwatching(visit):
    visitor = visit("wiki-watch", 2)
    values = visitor.values
    paths = ["/watch/" + values[name].replace(" ", "_") for name in ("person", "city")]
    for path in paths:
        assert (await visitor.post(path)).location == path.replace("/watch/", "/wiki/")
    assert visitor.score("done") == 1.0
    assert values["person"] in (await visitor.get("/watchlist")).text
    await visitor.post("/watch/River_" + encyclopedia(2).of("river")[0].title.split()[1])
    assert visitor.score("done") == 0.0
    await visitor.post("/watch/River_" + encyclopedia(2).of("river")[0].title.split()[1])
    assert visitor.score("done") == 1.0
    await visitor.post(paths[0])
    assert visitor.score("done") == 0.0
    assert (await visitor.post("/watch/Nowhere")).status == 404


async def corrected(visit, **changes: str):
    visitor = visit("wiki-correct", 3)
    values = visitor.values
    rows = form(visitor.state, values["city"])
    rows |= {"Population": values["population"], "Elevation": values["elevation"], "summary": values["summary"]}
    page = await visitor.post("/edit/" + values["city"], **rows | changes)
    return visitor, page


async def test_a_correction(visit):
    visitor, page = await corrected(visit)
    assert page.location == "/wiki/" + visitor.values["city"]
    assert visitor.score("done") == 1.0
    article = await visitor.get(page.location)
    assert visitor.values["population"] in article.text and "changed 1 times" in article.text
    assert visitor.values["population"] in (await visitor.get("/list/cities")).text
    assert visitor.values["summary"] in (await visitor.get("/changes")).text
    await corrected(visit)
    assert visitor.score("done") == 1.0  # another episode's edit


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"Population": "1"}, "Its population is "),
        ({"Elevation": "1 m"}, "Its elevation is "),
        ({"Founded": "1"}, "Its other rows are unchanged."),
        ({"summary": "because"}, "The summary is: "),
    ],
)
async def test_a_wrong_correction_is_named(visit, changes, fact):
    visitor, page = await corrected(visit, **changes)
    assert page.status == 303
    score, reason = visitor.live.score("done")
    assert score == 0.0
    assert reason.startswith(f"not met: {fact}") and ";" not in reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Mayor": ""}, "Mayor can't be empty."),
        ({"Mayor": "x" * 201}, "Mayor has 200 characters at most."),
        ({"summary": ""}, "Please describe your change in the summary."),
    ],
)
async def test_a_bad_edit_is_refused(visit, changes, message):
    visitor, page = await corrected(visit, **changes)
    assert (page.status, visitor.state.edits) == (422, [])
    assert message in page.text
    assert f'value="{visitor.values["population"]}"' in page.body


async def test_an_edit_that_changes_nothing_is_refused_and_a_second_one_is_a_miss(visit):
    visitor, _ = await corrected(visit)
    city = visitor.values["city"]
    page = await visitor.post(f"/edit/{city}", **form(visitor.state, city), summary="again")
    assert page.status == 422 and "Nothing was changed." in page.text
    assert visitor.score("done") == 1.0
    await visitor.post(f"/edit/{city}", **form(visitor.state, city) | {"Mayor": "Me"}, summary="again")
    assert visitor.score("done") == 0.0


async def test_what_is_edited_in_comes_back_as_text(visit):
    visitor, page = await corrected(visit, Mayor="<script>alert(1)</script>", summary="<b>bold</b>")
    for path in (page.location, "/changes", "/edit/" + visitor.values["city"]):
        body = (await visitor.get(path)).body
        assert "<script>" not in body and "<b>bold" not in body


async def test_the_edit_form_needs_no_script_and_names_every_row(visit):
    visitor = visit("wiki-correct", 3)
    city = visitor.values["city"]
    body = (await visitor.get(f"/edit/{city}")).body
    assert all(f'name="{label}"' in body for label in form(visitor.state, city))
    assert (await visitor.get("/edit/Nowhere")).status == 404
    assert (await visitor.post("/edit/Nowhere", summary="x")).status == 404
