"""The open web: pages that shut out, break, change while they are looked at, or lie; and what episodes share."""

import asyncio

import pytest

from tests.environments.visits import SmallWeb, Visit
from webgym_cli.environments.browser.options import read_credentials
from webgym_cli.environments.web import settling
from webgym_cli.errors import BoundaryError, SettingsError, UsageError
from webgym_cli.records.action import ActionName
from webgym_cli.records.failure import FailureKind

pytestmark = pytest.mark.browser

LAB = "http://lab.test"
ODD = "http://odd.test"


async def crash(visit: Visit) -> None:
    """Crash the page's process and wait until that is known."""
    page = visit.session.page
    inspector = await page.context.new_cdp_session(page)
    async with page.expect_event("crash"):
        ordered = asyncio.create_task(inspector.send("Page.crash"))  # nobody is left to answer
    ordered.cancel()
    await asyncio.gather(ordered, return_exceptions=True)


async def test_a_site_that_shuts_the_browser_out_is_blocked_and_one_that_checks_it_is_not(visit: Visit, monkeypatch):
    assert (await visit.open(f"{ODD}/check")).title == "Inside"
    monkeypatch.setattr(settling, "_CHALLENGE_SECONDS", 0.2)
    failure = await visit.refused(f"{LAB}/captcha")
    assert failure.kind is FailureKind.SITE_BLOCKED and "403" in str(failure)


async def test_a_page_behind_http_authentication_is_no_bot_wall(visit: Visit, local_web: SmallWeb, monkeypatch):
    """It fails for good, not as a site that shuts browsers out; with the right password it opens."""
    failure = await visit.refused(f"{ODD}/private")
    assert failure.kind is FailureKind.AUTHENTICATION_REQUIRED and "browser.http_credentials" in str(failure)
    assert not failure.kind.retryable
    monkeypatch.setattr(local_web.pool, "credentials", {"odd.test": ("ann", "wrong")})
    assert (await visit.refused(f"{ODD}/private")).kind is FailureKind.AUTHENTICATION_REQUIRED
    monkeypatch.setattr(local_web.pool, "credentials", {"odd.test": ("ann", "s3cret:x")})
    view = await visit.open(f"{ODD}/private")
    assert (view.title, view.url) == ("Inside", f"{ODD}/private")
    elsewhere = await visit.navigate("http://odd.example/private")
    assert elsewhere.title != "Inside", "the password goes to the start page's origin only"


def test_credentials_come_from_the_named_variables(monkeypatch):
    monkeypatch.setenv("WIKI_LOGIN", "ann:s3cret:x")
    assert read_credentials({"Wiki.example:8080": "WIKI_LOGIN"}) == {"wiki.example:8080": ("ann", "s3cret:x")}
    monkeypatch.setenv("WIKI_LOGIN", "ann")
    with pytest.raises(SettingsError, match="WIKI_LOGIN holds no user:password"):
        read_credentials({"wiki.example": "WIKI_LOGIN"})


async def test_a_captcha_or_an_error_later_is_what_there_is_to_see_and_nobody_has_solved_it(visit: Visit):
    await visit.open(f"{LAB}/history")
    for path in ("/captcha", "/error"):
        assert ((await visit.navigate(f"{LAB}{path}")).url, visit.error) == (f"{LAB}{path}", None)
    with pytest.raises(UsageError, match="no expert"):
        await visit.environment.expert_action()
    assert await visit.environment.answer("x") is None


async def test_pages_by_push_state_have_a_history(visit: Visit):
    await visit.open(f"{LAB}/history")
    for _ in range(2):
        await visit.click("Next page")
    for number in (2, 1):
        assert f"page {number + 1}" in await visit.text() and visit.error is None
        await visit.back()
    assert "page 1" in await visit.text()
    for _ in range(2):
        assert (await visit.back()).title == "Pages by pushState"
        assert visit.error == "there is no page to go back to"
        await visit.navigate(f"{LAB}/late")  # what lies ahead in history is no past
        assert ((await visit.back()).title, visit.error) == ("Pages by pushState", None)


async def test_a_page_that_does_not_come_again_is_told(visit: Visit):
    await visit.open(f"{ODD}/once")
    await visit.navigate(f"{LAB}/history")
    assert (await visit.back()).title == "Pages by pushState"
    assert visit.error.startswith("the page before can't be loaded")
    await visit.click("Next page")
    assert visit.error is None


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        *((url, FailureKind.START_PAGE_FAILED) for url in (f"{LAB}/error", f"{ODD}/endless", f"{LAB}/file.txt")),
        *((f"{LAB}{path}", FailureKind.NAVIGATION_FAILED) for path in ("/blank", "/slow?seconds=60")),
        *((url, FailureKind.NAVIGATION_FAILED) for url in ("http://no-such-host.invalid/", f"{ODD}/hang-up")),
        ("https://odd.test/", FailureKind.NAVIGATION_FAILED),
    ],
)
async def test_a_start_page_that_can_not_be_shown_or_reached(visit: Visit, url: str, kind: FailureKind):
    failure = await visit.refused(url)
    assert failure.kind is kind
    assert "500" in str(failure) or not url.endswith("/error")


async def test_redirects_are_followed_and_loops_end(visit: Visit):
    assert (await visit.open(f"{LAB}/redirect?to=/redirect?to=/late")).url == f"{LAB}/late"
    assert (await visit.navigate(f"{LAB}/redirect?to=http://other.test/framed")).title == "Inside a frame"
    loop = f"{ODD}/away?to=/away%3Fto=/away"  # the last one lacks its query and is an error
    await visit.navigate(f"{ODD}/away?to={loop}")
    assert visit.view.png


async def test_history_without_addresses_can_be_gone_back_too(visit: Visit):
    button = "<button onclick=\"history.pushState({}, ''); document.title = 'pushed'\">push</button>"
    script = "<script>addEventListener('popstate', () => { document.title = 'popped'; })</script>"
    await visit.show("/states", f"<title>states</title>{button}{script}")
    await visit.click("push")
    assert ((await visit.back()).title, visit.error) == ("popped", None)


async def test_frames_of_any_origin_are_listed_and_can_be_clicked(visit: Visit):
    await visit.open(f"{LAB}/iframe")
    assert visit.names == ["Press in lab.test", "Press in other.test"]
    await visit.click("Press in other.test")
    assert visit.names == ["Press in lab.test", "pressed"]
    await visit.click("Press in lab.test")
    assert (visit.names, visit.error) == (["pressed", "pressed"], None)


@pytest.mark.parametrize("tag", ["iframe src", "object data", "embed src"])
async def test_what_is_embedded_of_another_origin_is_listed_and_typed_to(visit: Visit, local_web: SmallWeb, tag: str):
    local_web.odd.pages["/inner"] = "<title>i</title><input aria-label=Field value=old>"
    embedded = f"<{tag}=http://odd.example/inner width=300 height=100></{tag.split()[0]}>"
    await visit.show("/outer", f"<title>o</title><button>Out</button>{embedded}")
    assert visit.names == ["Out", "Field"]
    await visit.act(ActionName.TYPE, element_id=1, text="new")
    assert (visit.error, visit.view.elements[1].value) == (None, "new")


async def test_a_page_that_blocks_for_ever_ends_its_episode_and_no_other(visit: Visit, local_web: SmallWeb):
    local_web.odd.pages["/block"] = "<title>b</title><button onclick='for (;;);'>Freeze</button>"
    local_web.odd.pages["/frozen"] = "<title>f</title><p>text</p><script>for (;;);</script>"
    await visit.open(f"{ODD}/block")
    with pytest.raises(BoundaryError) as failure:
        await visit.click("Freeze")
    assert failure.value.kind is FailureKind.PAGE_TIMEOUT
    assert (await visit.refused(f"{ODD}/frozen")).kind is FailureKind.PAGE_TIMEOUT
    await visit.environment.close()
    assert (await local_web.visit().open(f"{ODD}/block")).title == "b"


async def test_a_page_that_crashes_ends_its_episode_and_no_other(visit: Visit, local_web: SmallWeb):
    await visit.open(f"{LAB}/history")
    other = local_web.visit()
    await other.open(f"{LAB}/history")
    await crash(visit)
    with pytest.raises(BoundaryError) as failure:
        await visit.wait()
    assert failure.value.kind is FailureKind.BROWSER_CRASHED
    await other.click("Next page")
    assert "page 2" in await other.text()
    assert (await visit.open(f"{LAB}/history")).title == "Pages by pushState"


async def test_a_page_that_reloads_itself_again_and_again_is_observed(visit: Visit):
    script = "setTimeout(() => location.reload(), 150)"
    view = await visit.show("/restless", f"<title>restless</title><button>b</button><script>{script}</script>")
    assert view.title == "restless"
    for _ in range(3):
        view = await visit.wait()
        assert view.url == f"{ODD}/restless" and visit.error is None  # it may be seen before it has a title


async def test_a_page_that_never_stays_ends_its_own_episode_at_most(visit: Visit, local_web: SmallWeb):
    """It reloads some hundred times a second: whether it can be drawn in between is luck, that it ends is not."""
    local_web.odd.pages["/flees"] = "<title>flees</title><button>b</button><script>location.reload()</script>"
    await visit.open(f"{LAB}/history")
    try:
        view = await visit.navigate(f"{ODD}/flees")
        assert view.url == f"{ODD}/flees" and view.png
    except BoundaryError as failure:
        assert failure.kind is FailureKind.PAGE_TIMEOUT, failure
    await visit.environment.close()
    local_web.odd.hits.clear()
    assert (await local_web.visit().open(f"{LAB}/late")).title == "Late content"
    assert local_web.odd.hits == [], "it reloads no more"


async def test_a_page_that_moves_on_while_it_is_looked_at(visit: Visit, local_web: SmallWeb):
    script = "setTimeout(() => { location.href = '/arrived' }, 60)"
    local_web.odd.pages["/arrived"] = "<title>arrived</title><button>there</button>"
    await visit.show("/leaving", f"<title>leaving</title><h1>bye</h1><script>{script}</script>")
    view = await visit.wait(0.5)
    assert (view.url, view.title, visit.names) == (f"{ODD}/arrived", "arrived", ["there"])


async def test_a_page_may_give_its_parts_the_browser_s_names(visit: Visit, local_web: SmallWeb):
    names = "".join(f"<img name={name} alt=x>" for name in ("title", "body", "fonts", "images", "readyState"))
    local_web.odd.pages["/names"] = f"<title>named</title><h1>text</h1><form name=forms>{names}</form>"
    assert (await visit.open(f"{ODD}/names")).title == "named"
    await visit.wait()


THROWN = "() => { throw new Error('mine') }"
OWN = {
    "functions that throw": "; ".join(
        f"{name} = {THROWN}"
        for name in (
            *("performance.getEntriesByType", "performance.now", "Map", "Promise", "CustomEvent", "Number", "Proxy"),
            *("JSON.stringify", "JSON.parse", "Array.prototype.map", "Array.prototype.push", "getComputedStyle"),
            *("document.querySelector", "document.querySelectorAll", "document.getAnimations"),
            *("Element.prototype.getBoundingClientRect", "String.prototype.replace", "String.prototype.toWellFormed"),
            *("EventTarget.prototype.dispatchEvent", "EventTarget.prototype.addEventListener", "Reflect.apply"),
            *("Array.prototype[Symbol.iterator]", "Function.prototype.call"),
        )
    ),
    "functions that lie": "Array.prototype.filter = () => 7; Array.from = () => ({}); getComputedStyle = () => null; "
    "Element.prototype.getAttribute = () => ({}); Math.round = () => 'x'",
    "frozen": "Object.freeze(window); for (const kind of [Object, Function, Array, Element, EventTarget, Promise]) "
    "Object.freeze(kind.prototype)",
}


@pytest.mark.parametrize("case", OWN)
async def test_what_a_page_replaces_or_freezes_is_not_what_we_use(visit: Visit, case: str):
    late = "setTimeout((b) => { b.textContent = 'late' }, 300, this)"
    button = f'<button onclick="{late}">b</button>'
    await visit.show("/own", f"<title>own</title>{button}<script>{OWN[case]}</script>")
    await visit.click("b")
    assert visit.names == ["late"]


async def stored(visit: Visit) -> list[str]:
    """Return what the page of the laboratory shows of its four stores."""
    await visit.wait()
    return await visit.ask("() => Array.from(document.querySelectorAll('td'), (cell) => cell.textContent)")


@pytest.mark.parametrize("ending", ["closes", "crashes"])
async def test_no_storage_outlives_its_episode(visit: Visit, local_web: SmallWeb, ending: str):
    kept, empty = ["note=kept", "kept", "kept", "kept"], ["empty"] * 4
    await visit.open(f"{LAB}/storage")
    await visit.click("Write")
    await visit.open(f"{LAB}/storage")
    assert await stored(visit) == empty
    await visit.click("Write")
    assert await stored(visit) == kept
    await visit.navigate(f"{LAB}/storage")
    assert await stored(visit) == kept, "within an episode it stays"
    beside, after = local_web.visit(), local_web.visit()
    await beside.open(f"{LAB}/storage")
    assert await stored(beside) == empty
    if ending == "crashes":
        await crash(visit)
    for _ in range(2):
        await visit.environment.close()
    await after.open(f"{LAB}/storage")
    assert await stored(after) == empty


async def test_the_cache_does_not_outlive_its_episode(visit: Visit, local_web: SmallWeb):
    async def fetched(by: Visit) -> int:
        local_web.odd.hits.clear()
        await by.ask("() => fetch('/cached').then((answer) => answer.text())")
        return local_web.odd.hits.count("GET /cached")

    await visit.show("/empty", "<title>e</title>text")
    assert [await fetched(visit), await fetched(visit)] == [1, 0]
    other = local_web.visit()
    await other.open(f"{ODD}/empty")
    assert await fetched(other) == 1
