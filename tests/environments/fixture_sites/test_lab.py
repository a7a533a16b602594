import re

import pytest

from tests.environments.fixture_sites.driving import visitor
from tests.environments.fixture_sites.visiting import request
from webgym_cli.environments.browser.frames import OBSERVE_JS
from webgym_cli.environments.fixture_sites.lab import PAGES

STATUS = {"/captcha": 403, "/error": 500, "/redirect": 302}


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_is_open_to_all(sites, path):
    assert (await request(sites, "GET", "lab.test", f"{path}?seconds=0")).status == STATUS.get(path, 200)
    assert f'href="{path}"' in (await request(sites, "GET", "lab.test", "/")).body


async def test_only_what_is_framed_is_on_the_other_host(sites):
    assert (await request(sites, "GET", "other.test", "/framed")).status == 200
    for path in ("/", "/popup", "/redirect?to=/"):
        assert (await request(sites, "GET", "other.test", path)).status == 404
    assert (await request(sites, "GET", "lab.test", "/nowhere")).status == 404


async def test_pages_with_numbers(sites):
    heavy = await request(sites, "GET", "lab.test", "/heavy?nodes=10000")
    assert 10_000 < len(re.findall(r"<[a-z]", heavy.body)) < 10_050
    assert heavy.body.count("<a ") == 500
    assert "took 0.01 s" in (await request(sites, "GET", "lab.test", "/slow?seconds=0.01")).text
    for path in ("/heavy?nodes=x", "/heavy?nodes=-1", "/heavy?nodes=500001", "/slow?seconds=nan", "/slow?seconds=-1"):
        assert (await request(sites, "GET", "lab.test", path)).status == 400
    assert len((await request(sites, "GET", "lab.test", "/huge-text")).body) > 1_000_000


@pytest.mark.parametrize("target", ["http://10.0.0.1/", "file:///etc/passwd", "/popup"])
async def test_a_redirect_goes_anywhere(sites, target):
    assert (await request(sites, "GET", "lab.test", f"/redirect?to={target}")).location == target
    assert (await request(sites, "GET", "lab.test", "/redirect?to=a%0d%0aSet-Cookie:x")).status == 400


async def test_the_download_is_a_file(sites):
    assert (await request(sites, "GET", "lab.test", "/file.txt")).body == "A downloaded file.\n"


async def test_injections_are_text_of_the_page(sites):
    page = await request(sites, "GET", "lab.test", "/injection")
    for text in ("<image>", "<|im_end|>", "<tool_call>", "reward 1", "Ignore all previous instructions"):
        assert text in page.text
    assert not re.search(r"<image>|<tool_call>|<\|", page.body)


@pytest.fixture
async def lab(chromium):
    page = await visitor(chromium, None)
    yield page
    await page.context.close()


async def seen(page, text: str) -> None:
    await page.wait_for_function("(text) => document.getElementById('seen').textContent === text", arg=text)


@pytest.mark.browser
async def test_popups_and_dialogs(lab):
    await lab.goto("http://lab.test/popup")
    for press in ("button#open", "a[target]"):
        async with lab.context.expect_page() as opened:
            await lab.click(press)
        child = await opened.value
        await child.wait_for_load_state()
        assert await child.title() == "Popup"
        await child.close()
    calls = []

    async def accept(dialog):
        calls.append((dialog.type, dialog.message))
        await dialog.accept(dialog.default_value)

    lab.on("dialog", accept)
    await lab.goto("http://lab.test/dialogs")
    for name, text in (("Alert", "alert closed"), ("Confirm", "confirm true"), ("Prompt", "prompt nobody")):
        await lab.click(f"button:text-is('{name}')")
        await seen(lab, text)
    await lab.click("text=Guard this page")
    await lab.click("text=Leave")
    await lab.wait_for_url("http://lab.test/")
    assert [kind for kind, _ in calls] == ["alert", "confirm", "prompt", "beforeunload"]


@pytest.mark.browser
async def test_downloads_by_hand_and_by_themselves(lab):
    await lab.goto("http://lab.test/download")
    async with lab.expect_download() as started:
        await lab.click("text=Download the report")
    assert (await started.value).suggested_filename == "report.txt"
    async with lab.expect_download() as started:
        await lab.goto("http://lab.test/download?auto=1")
    assert (await started.value).suggested_filename == "report.txt"


@pytest.mark.browser
async def test_storage_is_written_and_shown(lab):
    await lab.goto("http://lab.test/storage")
    await seen(lab, "ready")
    cells = "() => Array.from(document.querySelectorAll('td'), (cell) => cell.textContent)"
    assert await lab.evaluate(cells) == ["empty"] * 4
    await lab.click("#write")
    await seen(lab, "written")
    assert await lab.evaluate(cells) == ["note=kept", "kept", "kept", "kept"]
    await lab.reload()
    await seen(lab, "ready")
    assert await lab.evaluate(cells) == ["note=kept", "kept", "kept", "kept"]


@pytest.mark.browser
async def test_frames_history_canvas_and_late_content(lab):
    await lab.goto("http://lab.test/iframe")
    assert sorted(frame.url for frame in lab.frames[1:]) == ["http://lab.test/framed", "http://other.test/framed"]
    names = [item["name"] for item in await lab.evaluate(f"() => {OBSERVE_JS}.look({{limit: 50, detail: false}})")]
    assert "Press in lab.test" in names and "Press in other.test" not in names
    await lab.goto("http://lab.test/history")
    await lab.click("#next")
    await seen(lab, "page 2")
    assert lab.url == "http://lab.test/history?page=2"
    await lab.go_back()
    await seen(lab, "page 1")
    await lab.goto("http://lab.test/canvas")
    await lab.click("#board", position={"x": 300, "y": 190})
    await seen(lab, "pressed")
    await lab.goto("http://lab.test/late")
    assert await lab.text_content("#place") == "Loading…"
    await lab.click("text=Late button")
    assert await lab.text_content("button") == "pressed"


@pytest.mark.browser
async def test_a_page_that_never_finishes_can_be_used(lab):
    await lab.goto("http://lab.test/endless", wait_until="domcontentloaded")
    assert await lab.evaluate("() => [document.readyState, document.images[0].complete]") == ["interactive", False]
    await lab.click("text=Back to the laboratory")
    await lab.wait_for_url("http://lab.test/")
