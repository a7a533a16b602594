"""Demonstrations by a person, who sees a picture of the page and has a mouse and a keyboard."""

import asyncio
import json
from contextlib import asynccontextmanager
from unittest.mock import Mock
from urllib.parse import parse_qsl, urlsplit

import pytest
from aiohttp import web

from tests.environments.visits import HASTY
from webgym_cli.config.load import load
from webgym_cli.environments.browser.observe import list_elements
from webgym_cli.environments.web.environment import WebEnvironment
from webgym_cli.errors import UsageError
from webgym_cli.loop import recording
from webgym_cli.loop.context import StageContext
from webgym_cli.record.live import LiveTask
from webgym_cli.record.server import RecordServer
from webgym_cli.records.task import Split, Task
from webgym_cli.scoring import check
from webgym_cli.store.buffer import scan_stored
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.util.local_server import LocalServer

MARKS, POINTS = "set_of_marks", "coordinates"
FULL = ("context_config.prompt_version=full", "browser.private_hosts=[127.0.0.1]")


@pytest.fixture
def run(tmp_path):
    """A run without settings: each test has its own."""
    return RunDir(tmp_path / "run")


class Person:
    """Finds things by looking, and acts by pointer and keys."""

    def __init__(self, view, started):
        self.view, self.started = view, started
        self.live = None

    async def begin(self):
        self.live = await self.started.get()
        await self.until("playing && page.naturalWidth > 0")
        return self.live

    async def point(self, name, role=None):
        session = self.live._environment.session
        async with self.live._lock:
            seen = [one.element for one in await list_elements(session)]
        x, y, width, height = next(one for one in seen if one.name == name and role in (None, one.role)).box
        box = await self.view.locator("#page").bounding_box()
        scale = box["width"] / session.options.width
        return box["x"] + (x + width / 2) * scale, box["y"] + (y + height / 2) * scale

    async def settled(self):
        await self.until("!waiting && !pending")

    async def until(self, condition):
        async with asyncio.timeout(60):
            await self.view.evaluate(f"new Promise((done) => setInterval(() => {{ if ({condition}) done(); }}, 50))")

    async def click(self, name, role=None):
        await self.view.mouse.click(*await self.point(name, role))
        await self.settled()

    async def type(self, text):
        await self.view.keyboard.type(text)
        await self.settled()

    async def press(self, *keys):
        for key in keys:
            await self.view.keyboard.press(key)
        await self.settled()

    async def shown(self):
        return await self.view.locator("#actions li").all_inner_texts()

    async def button(self, name):
        await self.view.get_by_role("button", name=name, exact=True).click()
        await self.settled()


@asynccontextmanager
async def record_by(run, chromium, monkeypatch, task, *overrides, files=()):
    """A person before the page of `webgym record`, and the number of kept demonstrations at the end."""
    settings = load(files, [*HASTY, f"tasks.train={task}", *overrides])
    create_or_open(run, settings)
    started: asyncio.Queue = asyncio.Queue()
    address = asyncio.get_running_loop().create_future()
    record = RecordServer.record

    async def note(server, live):
        started.put_nowait(live)
        return await record(server, live)

    monkeypatch.setattr(RecordServer, "record", note)
    async with StageContext(run, settings, run.logs, lambda event: None) as context:
        tasks = recording.select_tasks(run, settings, task)
        job = asyncio.create_task(recording.record_demonstrations(context, tasks, [], 0, address.set_result))
        view = await chromium.new_page(viewport={"width": 1500, "height": 1100})
        try:
            await asyncio.wait([job, address], return_when=asyncio.FIRST_COMPLETED)
            await view.goto(job.result() if job.done() else await address)
            yield Person(view, started), job
        finally:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
            await view.close()


def stored(run):
    return list(scan_stored(run, Split.TRAIN, 0))


def test_tasks_of_a_file_may_use_what_lies_beside_it(tmp_path):
    (tmp_path / "files").mkdir()
    line = {"id": "a", "instruction": "Upload it.", "start_url": "https://a.example", "upload_folder": "files"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(line))
    settings = load(overrides=["judge.base_url=scripted"])
    (task,) = recording.select_tasks(RunDir(tmp_path / "run"), settings, str(tmp_path / "tasks.jsonl"))
    assert task.extra["upload_folder"] == str(tmp_path / "files")


@pytest.mark.browser
@pytest.mark.parametrize("mode", [MARKS, POINTS])
async def test_a_person_s_demonstration_is_replayed_and_kept(run, chromium, monkeypatch, mode):
    prefer = f"context_config.interaction_mode={mode}"
    async with record_by(run, chromium, monkeypatch, "sites:mail-write", prefer) as (person, job):
        live = await person.begin()
        world = live._environment._sites.episodes[live._environment._token].values
        await person.click("User name")
        await person.type(world["user"] + "x")
        await person.press("Backspace", "Tab")
        await person.type(world["password"])
        await person.press("Enter")
        assert [action.split()[0] for action in await person.shown()] == ["type", "type"]
        await person.click("Contacts", "link")
        await person.click(f"Write to {world['name']}")
        await person.click("Subject")
        await person.type("wrong")
        await person.button("Undo")
        await person.click("Subject")
        await person.type(world["subject"])
        await person.click("Message")
        await person.type(world["text"])
        await person.click("Send", "button")
        assert len(await person.shown()) == 7
        await person.button("Done")
        assert await job == 1
    (kept,) = stored(run)
    assert (kept.policy, kept.outcome.reward) == ("oracle", 1.0)
    assert " ".join(step.action.name for step in kept.steps) == "type type click click type type click answer"
    assert all(step.observation.screenshot for step in kept.steps)


async def test_there_is_no_picture_before_and_after_the_task():
    environment = WebEnvironment(Mock(max_idle_wait=0.0))
    assert await LiveTask(environment, Task(id="a", environment="web"), 0, load()).screenshot() == b""


async def test_each_undo_opens_the_task_under_another_id():
    opened = []

    async def reset(task, seed):
        opened.append(environment.episode)
        return task.instruction, None

    environment = Mock(episode="a.live", reset=reset)
    live = LiveTask(environment, Task(id="a", environment="web"), 0, load())
    await live.open()
    await live.undo()
    assert (opened, live.message) == (["a.live.1", "a.live.2"], "")


PAGE = """<!DOCTYPE html><title>Order</title><form action=/ordered target=_blank>
<label>Size <select name=size><option value=1>Small</option><option value=2>Large, blue</option></select></label>
<label>Name <input name=name value=Ann></label><label>Note <textarea name=note></textarea></label>
<label>Day <input type=date name=day></label>
<label>Picture <input type=file name=file></label><label>Paper <input type=file name=paper></label>
<label>Street <input onchange="this.form.style.paddingTop = '60px'"></label>
<label>Gift <input type=checkbox name=gift></label>
<label>City <input name=city list=cities></label><datalist id=cities><option>Rome</datalist>
<div style="height: 60px; overflow: auto"><button type=button>First</button><p style="height: 400px"></p>
<label>Terms <input type=checkbox name=terms></label></div>
<p style="height: 2000px"></p><button>Order</button></form>"""


WANTED = {"size": "2", "name": "Anna", "note": "one\nAnna", "day": "2027-03-04", "file": "cat.png", "gift": "on"}
WANTED |= {"city": "Rome", "terms": "on", "paper": "cat.png"}

KEYS_PAGE = """<!DOCTYPE html><title>Write</title><div id=text contenteditable aria-label=Text></div>
<button onmousedown="event.preventDefault()" onclick="document.execCommand('italic')">Italic</button>
<input aria-label="Digit 1"><input aria-label="Digit 2"><script>
const [first, second] = document.querySelectorAll("input");
first.oninput = () => second.focus();
second.onkeydown = (event) => {
  const sent = { html: text.innerHTML.replace("&nbsp;", " "), code: first.value + second.value };
  if (event.key === "Enter" && event.ctrlKey) location = `/?${new URLSearchParams(sent)}`;
};
</script>"""
KEYS_WANTED = {"html": "Hi <b>you<i>!</i></b>", "code": "47"}


DROP = """([x, y, name]) => {
  const data = { dataTransfer: new DataTransfer(), bubbles: true, cancelable: true, clientX: x, clientY: y };
  data.dataTransfer.items.add(new File(["x"], name));
  for (const kind of ["dragover", "drop"]) document.elementFromPoint(x, y).dispatchEvent(new DragEvent(kind, data));
}"""


@pytest.fixture
async def order_form(tmp_path, request):
    """A task whose page asks for everything that a form can have, or another page, scored by what is sent."""
    page, wanted = getattr(request, "param", (PAGE, WANTED))

    async def answer(request):
        words = "<br>".join(f"{name}: {value}" for name, value in request.query.items())
        return web.Response(text=f"<title>Ordered</title>{words}" if words else page, content_type="text/html")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "cat.png").write_bytes(b"cat")
    async with LocalServer(app, 0) as server:
        fields = {"check": "order form", "wanted": wanted, "upload_folder": str(tmp_path / "files")}
        address = f"http://{server.address}/"
        line = {"id": "order", "environment": "web", "instruction": "Order it.", "start_url": address, **fields}
        (tmp_path / "tasks.jsonl").write_text(json.dumps(line))
        yield str(tmp_path / "tasks.jsonl")


@check("order form")
def order_form_check(wanted, context):
    """1 if the form was sent with these values."""
    sent = dict(parse_qsl(urlsplit(context.url).query))
    return float({name: value.replace("\r", "") for name, value in sent.items()} == wanted)


@pytest.mark.browser
async def test_selects_uploads_keys_wheel_and_tabs_become_actions(run, chromium, monkeypatch, order_form):
    full = (*FULL, f"context_config.interaction_mode={MARKS}")
    async with record_by(run, chromium, monkeypatch, order_form, *full) as (person, job):
        await person.begin()
        await person.button("Done")
        await person.begin()  # again, and the page says why before anything is done
        await person.until("at('message').textContent.startsWith('not kept') && !at('actions').children.length")
        await person.click("Size")
        await person.button("Large, blue")
        await person.click("Name")
        await person.press("End")
        await person.type("x")
        await person.press("Backspace")
        await person.view.keyboard.insert_text("a")  # as an input method does
        await person.settled()
        await person.press("Control+a", "Control+c")
        await person.press("Tab")  # of use as the last action, or where it changes the page
        assert [action.split()[0] for action in await person.shown()] == ["select_option", "type", "key"]
        await person.type("one")
        await person.press("Enter", "Control+v")
        await person.click("Day")  # in its middle, which is the year
        await person.type("03042027")
        await person.click("Picture")
        await person.button("cat.png")
        await person.view.evaluate(DROP, [*await person.point("Paper"), "cat.png"])
        await person.settled()
        await person.click("Street")
        await person.type("High")
        await person.press("Tab")  # moves what comes after it, which a click would miss
        await person.click("Gift", "checkbox")
        await person.click("City")  # its popup is not in the picture
        await person.button("Rome")
        await person.view.mouse.move(*await person.point("First"))
        await person.view.mouse.wheel(0, 700)
        await person.settled()
        await person.click("Terms", "checkbox")
        for _ in range(3):
            await person.view.mouse.wheel(0, 700)
        await person.settled()
        await person.click("Order")
        names = [action.split()[0] for action in await person.shown()]
        await person.button("Done")
        assert await job == 1
    inner = ["click", "type", "scroll", "click"]
    files = ["upload_file", "upload_file", "type", "key", "click"]
    assert names == ["select_option", "type", "type", "type", *files, *inner, "scroll", "click"]
    (kept,) = stored(run)
    assert [step.action.text for step in kept.steps if step.action.name == "type"] == [
        *("Anna", "one\nAnna", "2027-03-04", "High", "Rome")
    ]
    assert kept.final.title == "Ordered"
    with pytest.raises(UsageError, match="has a demonstration"):
        recording.select_tasks(run, load(overrides=[*full, f"tasks.train={order_form}"]), order_form)


@pytest.mark.browser
@pytest.mark.parametrize("mode", [MARKS, POINTS])
@pytest.mark.parametrize("order_form", [(KEYS_PAGE, KEYS_WANTED)], indirect=True)
async def test_formats_a_focus_that_moves_on_and_shortcuts_are_recorded_as_keys(
    run, chromium, monkeypatch, order_form, mode
):
    full = (*FULL, f"context_config.interaction_mode={mode}")
    async with record_by(run, chromium, monkeypatch, order_form, *full) as (person, job):
        await person.begin()
        await person.view.mouse.click(*await person.point("Text"))
        await person.view.keyboard.type("Hi ")  # at once, as all of it, and done in this order
        await person.view.keyboard.press("Control+b")
        await person.type("you")
        await person.click("Italic")
        await person.type("!")
        await person.click("Digit 1")
        await person.type("47")
        await person.press("Control+Enter")
        names = [action.split()[0] for action in await person.shown()]
        await person.button("Done")
        assert await job == 1
    assert names == ["type", "key", "type", "click", "type", "click", "type", "key"]
    (kept,) = stored(run)
    assert [step.action.text for step in kept.steps if step.action.name == "type"] == ["Hi ", "you", "!", "47"]


# It notes in which ninth of the pad, by number, the pen was.
DRAW_PAGE = """<!DOCTYPE html><title>Sign</title><canvas width=300 height=150 aria-label=Pad></canvas>
<button>Send</button>
<script>
const passed = new Set();
document.querySelector("canvas").onmousemove = ({ buttons, offsetX, offsetY }) => {
  if (buttons) passed.add(3 * Math.floor(offsetY / 50) + Math.floor(offsetX / 100));
};
document.querySelector("button").onclick = () => { location = `/?passed=${[...passed].join("")}`; };
</script>"""


@pytest.mark.browser
@pytest.mark.parametrize("mode", [MARKS, POINTS])
@pytest.mark.parametrize("order_form", [(DRAW_PAGE, {"passed": "036785"})], indirect=True)
async def test_a_drawing_is_recorded_with_the_corners_of_its_way(run, chromium, monkeypatch, order_form, mode):
    more = ("context_config.more_actions=true", f"context_config.interaction_mode={mode}")
    async with record_by(run, chromium, monkeypatch, order_form, *FULL, *more) as (person, job):
        await person.begin()
        x, y = await person.point("Pad")
        box = await person.view.locator("#page").bounding_box()
        scale, mouse = box["width"] / person.live._environment.session.options.width, person.view.mouse
        await mouse.move(x - 100 * scale, y - 50 * scale)
        await mouse.down()
        for across, down in ((-100, 50), (100, 50), (100, 0)):
            await mouse.move(x + across * scale, y + down * scale, steps=8)
        await mouse.up()
        await person.settled()
        await person.click("Send")
        await person.button("Done")
        assert await job == 1
    (kept,) = stored(run)
    drag = kept.steps[0].action
    assert drag.name == "drag" and 2 <= len(drag.path) <= 4 and kept.outcome.reward == 1
