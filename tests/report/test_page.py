"""The report's page: complete in itself, and what others wrote is text in it. Drawn by a real Chromium."""

import re

import pytest

from tests.inspect.buffers import fill_run
from tests.own_pages import assert_complete
from tests.records.builders import CRASHED, SOLVED, new_run, shot, step, trajectory
from tests.report.runs import at, did, facts, log_steps, note
from webgym_cli.config.load import load
from webgym_cli.records.series import name_served
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Observation
from webgym_cli.report.page import render_report
from webgym_cli.report.views import build_sections
from webgym_cli.store.buffer import append

HOSTILE = (
    "</h3></title></style><script>document.title = 'taken'</script><img src=http://evil.test/x onerror=alert(1)>"
    "<a href=javascript:alert(1)>\"' &amp; <!-- \u202e {{ 7 * 7 }}"
)
WIDE, HIGH = 640, 384


def sight(shade):
    return Observation(url="http://a/", title=HOSTILE, screenshot=shot(shade, WIDE, HIGH))


def happened(n):
    """Return the events of an iteration."""
    which, model, start = {"iteration": n}, {"parent": HOSTILE, "created_at": at(100 * n + 90)}, 100 * n
    return (
        {"event": "evaluation", **which, "seconds": 20, "at": at(start + 20)},
        {"event": "rollout", **which, "seconds": 30, "at": at(start + 50), "stages": {"act": {"total": 9}}},
        {"event": "prepare", **which, "train_samples": 9 + n, "val_samples": 1, "at": at(start + 51)}
        | {"model_name": f"m{n}", "parent": HOSTILE},
        {"event": "train", **which, "steps": 5, "loss": 2.0 / (n + 1), "at": at(start + 91)}
        | {"version": n + 1, "name": f"m{n}", **model},
    )


@pytest.fixture
def run(tmp_path):
    """Three iterations of ten test episodes that get better, failures, demonstrations, and events."""
    steps = (step(0, observation=sight(10)), step(1, observation=sight(200)))
    hostile = Task(id=HOSTILE, difficulty=5, start_url="http://evil.test/")
    episodes = [trajectory(n, outcome=SOLVED) for n in range(3)]
    for iteration in range(3):
        episodes += [did(n, "shop", solved=n < 2 + 3 * iteration, iteration=iteration) for n in range(10)]
        episodes.append(did(20, "shop", solved=False, iteration=iteration, outcome=CRASHED))
        odd = {"instruction": HOSTILE, "task": hostile, "policy": HOSTILE, "split": Split.TRAIN}
        odd["outcome"] = SOLVED.model_copy(update={"answer": HOSTILE})
        episodes.append(trajectory(30, iteration=iteration, **odd))
    run = fill_run(tmp_path / "run", *(episode.model_copy(update={"steps": steps}) for episode in episodes))
    for n in range(3):
        note(run, *happened(n))
        log_steps(run, f"m{n}", *({"loss": n + step / 10} for step in (1, 2, 3)))
    return run


ROW = '<th scope="row">webgym</th>'


def rendered(run, price=None):
    return render_report(facts(run, 8, price))


def test_nothing_foreign_is_markup_and_nothing_is_loaded(run):
    for iteration in range(3):
        served = name_served(HOSTILE, "http://evil.test/v1")
        append(run, did(40, "x", solved=iteration > 0, iteration=iteration, policy=served))
    text = rendered(run).decode()
    assert text.startswith("<!doctype html>")
    assert re.findall(r"<(script|iframe|object|embed|form|link)\b", text) == ["link"]
    assert set(re.findall(r'(?:src|href)="([a-z]+:|#)', text)) == {"data:", "#"}
    assert " style=" not in text and "{{ 7 * 7 }}" in text
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#39;", "'")
    assert re.fullmatch(
        r"default-src 'none'; img-src data:; connect-src 'none'; frame-src 'none'; style-src 'sha256-[^']+'; "
        r"script-src 'none'; base-uri 'none'; form-action 'none'",
        policy,
    )


def test_a_run_without_anything_has_a_page_that_says_so(tmp_path):
    run = fill_run(tmp_path / "run")
    assert build_sections(facts(run)) == []
    text = rendered(run).decode()
    assert "There are no trajectories yet." in text and "All settings have their defaults." in text


def test_every_chart_has_its_numbers_in_a_table(run):
    by_title = {figure.title: figure for section in build_sections(facts(run)) for figure in section.figures}
    rows = by_title["Success by split"].rows
    assert rows[0] == ("test", "0", "20 %", "5.7 % to 51 %", "2 of 10 solved")
    assert [row[:3] for row in rows if row[0] == "demonstrations"] == [("demonstrations", "0", "100 %")]
    assert by_title["Success by difficulty, train"].legend == ("medium",)
    assert by_title["Loss"].rows[3:5] == (
        ("all trainings", "4", "1.1", "version 2, 1 logged"),
        ("all trainings", "5", "1.2", "version 2, 1 logged"),
    )
    assert len(by_title["Failures by kind"].rows) == 1
    assert by_title["Samples by dataset"].rows[0] == ("iteration 0", "9", "1", "10")
    assert by_title["Time by iteration"].rows[0] == ("iteration 0", "20 s", "30 s", "39 s", "89 s")


def test_cost_is_told_with_its_price_and_asked_for_without(run):
    def time_and_cost(price):
        shown = build_sections(facts(run, 8, price))
        return next(f for section in shown for f in section.figures if f.title == "Time and cost")

    assert time_and_cost(90.0).rows[-1] == ("all", "-", "4.8 min", "100 %", "0.647", "58.20")
    assert time_and_cost(90.0).note == "Counted for 8 GPUs, all the time, at 90 an hour each."
    assert (time_and_cost(None).rows[-1][-1], "--gpu-hour-price" in time_and_cost(None).note) == ("-", True)
    assert ("prepare", "3", "unknown", "-", "-", "-") in time_and_cost(None).rows
    assert b"GPU hours</div>" in rendered(run, 90.0)


def test_settings_and_origin_are_told(tmp_path):
    run = new_run(tmp_path / "run", load(overrides=["seed=7", f"tasks.train={'x' * 900}"]))
    text = rendered(run).decode()
    assert re.search(r"<th scope=\"row\">seed</th><td>7</td><td>0</td>", text)
    assert "x" * 390 in text
    assert "x" * 400 not in text
    assert ROW in text
    run.provenance.write_text("{")
    assert ROW not in rendered(run).decode()
    run.provenance.unlink()
    assert ROW not in rendered(run).decode()


@pytest.fixture
def written(run, tmp_path):
    path = tmp_path / "report.html"
    path.write_bytes(rendered(run))
    return path.as_uri()


@pytest.mark.browser
@pytest.mark.parametrize("width", [375, 1280])
async def test_the_page_in_chromium(view, written, run, width):
    await view.set_viewport_size({"width": width, "height": 700})
    await view.goto(written)
    assert_complete(view)
    assert await view.title() == str(run.root)
    assert await view.evaluate("document.documentElement.scrollWidth") <= width
    assert await view.locator("a:not(nav a), script, img").count() == 0
    heights = "[...document.querySelectorAll('.chart text')].map((text) => text.getBoundingClientRect().height)"
    assert min(await view.evaluate(heights)) >= 9  # pixels: words in charts stay readable


@pytest.mark.browser
async def test_charts_are_drawn_and_their_tables_unfold(view, written):
    await view.goto(written)
    chart = view.locator("#success .chart").first
    assert await chart.locator("circle").count() == 3 + 3 + 1
    assert "2 of 10 solved" in await chart.locator("title").first.text_content()
    picture = await chart.screenshot()
    assert len(set(picture)) > 100  # not one plain colour
    fold = view.locator("#success details").first
    assert not await fold.locator("table").is_visible()
    await fold.locator("summary").click()
    assert "5.7 % to 51 %" in await fold.locator("table").inner_text()


@pytest.mark.browser
async def test_dark_is_dark(view, written):
    await view.goto(written)
    pictures, shades = [], []
    for scheme in ("light", "dark"):
        await view.emulate_media(color_scheme=scheme)
        pictures.append(await view.locator("#success figure").first.screenshot())
        shades.append(await view.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert shades == ["rgb(246, 246, 244)", "rgb(20, 21, 23)"]
    assert brightness(pictures[0]) > 200
    assert brightness(pictures[1]) < 60


def brightness(picture):
    import io

    from PIL import Image, ImageStat

    with Image.open(io.BytesIO(picture)) as image:
        return ImageStat.Stat(image.convert("L")).mean[0]
