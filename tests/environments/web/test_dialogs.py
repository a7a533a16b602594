"""Dialogs that are left to the policy: they stay open, are told, and are answered by actions and by keys."""

from collections.abc import AsyncIterator

import pytest

from tests.environments.visits import SmallWeb, Visit, small_web
from webgym_cli.config.load import load
from webgym_cli.environments.registry import check_tasks
from webgym_cli.environments.sites.site_expert import ExpertRun, SiteExpert
from webgym_cli.errors import SettingsError
from webgym_cli.records.action import ActionName
from webgym_cli.records.task import Task

pytestmark = pytest.mark.browser

DIALOGS = "http://lab.test/dialogs"
ODD = "http://odd.test"
ACCEPT, DISMISS, KEY, TYPE = ActionName.ACCEPT_DIALOG, ActionName.DISMISS_DIALOG, ActionName.KEY, ActionName.TYPE


@pytest.fixture(scope="module")
async def local_web(chromium: str) -> AsyncIterator[SmallWeb]:
    """The local web, whose pages' dialogs are the policy's."""
    async with small_web("browser.dialogs=policy", "browser.action_timeout=5") as web:
        yield web


def assert_open(visit: Visit, *parts: str) -> None:
    """The observation is of an open dialog: no picture and no elements, but what it says."""
    assert (visit.view.png, visit.view.elements) == (b"", ())
    assert all(part in visit.view.notices[-1] for part in ("is open", *parts)), visit.view.notices


@pytest.mark.parametrize(
    ("button", "values", "answer", "fields", "left"),
    [
        ("Alert", ("(alert)", '"A message from the page"'), ACCEPT, {}, "alert closed"),
        ("Alert", ("(alert)",), DISMISS, {}, "alert closed"),
        ("Confirm", ("(confirm)", '"Do you agree?"'), ACCEPT, {}, "confirm true"),
        ("Confirm", ("(confirm)",), DISMISS, {}, "confirm false"),
        ("Confirm", ("(confirm)",), KEY, {"keys": ("Enter",)}, "confirm true"),
        ("Confirm", ("(confirm)",), KEY, {"keys": ("esc",)}, "confirm false"),
        ("Prompt", ("(prompt)", '"Your name?"', '"nobody"'), ACCEPT, {"text": "Zoe"}, "prompt Zoe"),
        ("Prompt", ("(prompt)",), ACCEPT, {}, "prompt nobody"),
        ("Prompt", ("(prompt)",), DISMISS, {}, "prompt null"),
        ("Prompt", ("(prompt)",), TYPE, {"here": True, "append": True, "text": "Eve\n"}, "prompt Eve"),
    ],
)
async def test_a_dialog_stays_open_until_it_is_answered(visit: Visit, button, values, answer, fields, left):
    await visit.open(DIALOGS)
    before = visit.view
    await visit.click(button)
    assert_open(visit, *values)
    assert (visit.error, visit.view.url, visit.view.title) == (None, before.url, before.title)
    await visit.act(ActionName.SCROLL, direction="down")
    assert_open(visit, *values)
    assert "a dialog is open" in visit.error
    await visit.act(answer, **fields)
    assert (visit.error, visit.view.notices) == (None, ())
    assert visit.view.png and button in visit.names
    assert left in await visit.text()


async def test_a_prompt_s_text_is_typed_before_it_is_accepted(visit: Visit):
    await visit.open(DIALOGS)
    await visit.click("Prompt")
    for text, held in (("Eve", '"Eve"'), (" Ann", '"Eve Ann"')):
        await visit.act(TYPE, here=True, append=True, text=text)
        assert_open(visit, held)
    await visit.act(KEY, keys=("Enter",))
    assert "prompt Eve Ann" in await visit.text()


async def test_what_can_t_be_answered_so_says_why(visit: Visit):
    await visit.open(DIALOGS)
    await visit.act(ACCEPT)
    assert visit.error == "no dialog is open"
    await visit.click("Confirm")
    await visit.act(ACCEPT, text="yes")
    assert_open(visit)
    assert "(confirm) has no field" in visit.error
    await visit.act(KEY, keys=("nokey",))
    assert "a dialog is open" in visit.error
    await visit.act(ACCEPT)
    assert "confirm true" in await visit.text()


@pytest.mark.parametrize("leave", ["link", "navigate", "back"])
async def test_whether_a_page_is_left_is_the_policy_s_choice(visit: Visit, leave: str):
    await visit.open("http://lab.test/history")
    await visit.navigate(DIALOGS)
    await visit.click("Guard this page")
    ways = {"link": lambda: visit.click("Leave"), "navigate": lambda: visit.navigate(f"{ODD}/"), "back": visit.back}
    for answer in (DISMISS, ACCEPT):
        await ways[leave]()
        assert_open(visit, "(beforeunload)", "may be lost")
        await visit.act(answer)
        assert visit.error is None
        assert (visit.view.url == DIALOGS) == (answer is DISMISS)


async def test_a_dialog_before_anything_else_is_the_first_thing_to_see(visit: Visit):
    await visit.open(f"{DIALOGS}?auto=1")
    assert_open(visit, "A message before anything else")
    await visit.act(ACCEPT)
    assert visit.view.png and "alert closed" in await visit.text()


async def test_dialogs_in_a_row_and_one_that_opens_on_its_own(visit: Visit):
    await visit.show(
        "/row",
        "<title>r</title><button onclick='p.textContent = [prompt(1), prompt(2)]'>Two</button>"
        "<button onclick='setTimeout(() => { p.textContent = confirm(3) }, 700)'>Later</button><p id=p></p>",
    )
    await visit.click("Two")
    assert_open(visit, '"1"')
    await visit.act(ACCEPT, text="a")
    assert_open(visit, '"2"', 'holds ""')
    await visit.act(ACCEPT, text="b")
    assert "a,b" in await visit.text()
    await visit.click("Later")
    if visit.view.png:  # it opens while the policy thinks, or waits
        await visit.wait(2)
    assert_open(visit, '"3"')
    await visit.act(ACCEPT)
    assert "true" in await visit.text()


async def test_a_dialog_of_a_popup_and_one_of_its_opener(visit: Visit, local_web: SmallWeb):
    local_web.odd.pages["/child"] = (
        "<title>c</title><button>Child</button><script>window.said = confirm('new')</script>"
    )
    local_web.odd.pages["/opener"] = (
        "<title>o</title><button onclick=\"window.open('/child')\">Open</button>"
        "<button onclick=\"window.open('/row'); p.textContent = confirm('old')\">Both</button><p id=p></p>"
    )
    local_web.odd.pages["/row"] = "<title>r</title><button>Row</button>"
    await visit.open(f"{ODD}/opener")
    await visit.click("Open")
    assert_open(visit, '"new"')
    await visit.act(ACCEPT)
    assert (visit.names, await visit.ask("() => window.said")) == (["Child"], True)
    await visit.back()
    await visit.click("Both")
    assert_open(visit, '"old"')
    assert visit.view.url == f"{ODD}/opener"
    await visit.act(DISMISS)
    assert visit.names == ["Row"]
    await visit.back()
    assert "false" in await visit.text()


async def test_an_expert_reads_and_answers_a_dialog(visit: Visit):
    def work(page):
        yield page.click("Confirm", "button")
        yield page.read('it says "Do you agree')
        yield page.press("Escape")

    await visit.open(DIALOGS)
    visit.environment._expert = ExpertRun(SiteExpert.of(work, "lab"), {})
    for _ in range(2):
        await visit.environment.step(await visit.environment.expert_action())
    assert "confirm false" in await visit.text()


async def test_an_episode_that_ends_with_an_open_dialog_leaves_nothing(visit: Visit, local_web: SmallWeb):
    process = local_web.pool.browsers._places[0].process
    await visit.open(DIALOGS)
    await visit.click("Alert")
    assert_open(visit)
    await visit.environment.close()
    assert (process.sessions, len(process._browser.contexts)) == (0, 0)
    await visit.open(DIALOGS)
    assert "Alert" in visit.names and visit.view.png


def test_dialogs_are_left_only_to_who_can_answer_them():
    page = Task(id="a", environment="web", start_url="https://a.example", instruction="Go.")
    policy = "browser.dialogs=policy"
    for version in ("full", "full_vanilla", "computer_use", "ui_tars"):
        check_tasks(load(overrides=[policy, f"context_config.prompt_version={version}"]), [page])
    for version in ("complete", "vanilla", "webgym", "webrl"):
        with pytest.raises(SettingsError, match=f"{version} has no action"):
            check_tasks(load(overrides=[policy, f"context_config.prompt_version={version}"]), [page])
    with pytest.raises(SettingsError, match="miniwob accepts dialogs itself"):
        check_tasks(load(overrides=[policy, "context_config.prompt_version=full"]), [Task(id="click-test")])
