"""Drives the fixture sites with plain Playwright, as an environment would, and lets the experts act."""

from dataclasses import dataclass, field

from playwright.async_api import Browser, Page

from tests.executable import needs_chromium
from webgym_cli.environments.browser.frames import ACT_JS, OBSERVE_JS
from webgym_cli.environments.browser.observe import ElementSnapshot, observe_script, parse_elements
from webgym_cli.environments.fixture_hosts import HOSTS
from webgym_cli.environments.fixture_sites.server import EPISODE_COOKIE, SiteServer
from webgym_cli.environments.sites.site_expert import ExpertRun
from webgym_cli.records.action import Action, ActionName

SIZE = {"width": 1280, "height": 768}
PAGE = SIZE["height"] - 50


async def launch(playwright, server: SiteServer) -> Browser:
    """Start a Chromium that finds all hosts of `.test` at the server."""
    rules = f"--host-resolver-rules=MAP *.test {server.address}"
    return await playwright.chromium.launch(executable_path=needs_chromium(), args=["--no-sandbox", rules])


async def visitor(browser: Browser, token: str | None) -> Page:
    """Open a page in a fresh context that carries the episode's cookie."""
    context = await browser.new_context(viewport=SIZE)
    await context.add_init_script(observe_script())
    if token is not None:
        await context.add_cookies(
            [{"name": EPISODE_COOKIE, "value": token, "url": f"http://{host}/", "httpOnly": True} for host in HOSTS]
        )
    return await context.new_page()


@dataclass
class Driven:
    """What became of an episode."""

    answer: str | None = None
    actions: list[Action] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What the page's scripts threw, and what went to other servers."""


async def drive(page: Page, start_url: str, expert: ExpertRun, limit: int) -> Driven:
    """Let the expert act until it answers, at most so many steps."""
    driven = Driven()
    page.on("pageerror", lambda error: driven.errors.append(str(error)))
    page.on("request", lambda request: _foreign(request.url) and driven.errors.append(request.url))
    await page.goto(start_url)
    for _ in range(limit):
        seen = parse_elements(await page.evaluate(f"() => {OBSERVE_JS}.look({{limit: 200, detail: false}})"))
        text = await page.evaluate("() => document.body.innerText")
        action = expert.next(page.url, [sight.element for sight in seen], text)
        driven.actions.append(action)
        if action.name is ActionName.ANSWER:
            driven.answer = action.text
            break
        await act(page, action, seen)
        await page.wait_for_load_state("load")
    return driven


async def act(page: Page, action: Action, seen: list[ElementSnapshot]) -> None:
    """Carry out one action with real input events."""
    if action.name is ActionName.SCROLL:
        await page.mouse.move(SIZE["width"] / 2, SIZE["height"] / 2)
        await page.mouse.wheel(0, PAGE if action.direction == "down" else -PAGE)
        await page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    elif action.name is ActionName.NAVIGATE:
        await page.goto(action.url)
    elif action.name is ActionName.WAIT:
        await page.wait_for_timeout(1000 * action.seconds)
    else:
        assert action.name in (ActionName.CLICK, ActionName.TYPE), action
        await _press(page, action, seen[action.element_id].point)


async def _press(page: Page, action: Action, point: tuple[float, float]) -> None:
    before = await page.evaluate("() => performance.timeOrigin")
    leaves = await page.evaluate(
        """([x, y]) => {
          const hit = document.elementFromPoint(x, y)?.closest("a[href],button");
          return Boolean(hit && (hit.localName === "a" || hit.form));
        }""",
        list(point),
    )
    await page.mouse.click(*point)
    if action.name is ActionName.TYPE:
        text = action.text.removesuffix("\n")
        ready = await page.evaluate(f"([point, text]) => {ACT_JS}.prepare(point, text)", [list(point), text])
        assert "error" not in ready, ready
        if ready.get("typing"):
            await page.keyboard.insert_text(text)
        leaves = action.text.endswith("\n")
        if leaves:
            await page.keyboard.press("Enter")
    if leaves:
        # All forms and links of the sites load a new document.
        await page.wait_for_function("(before) => performance.timeOrigin !== before", arg=before)


def _foreign(url: str) -> bool:
    return not url.startswith(("data:", "about:", *(f"http://{host}/" for host in HOSTS)))
