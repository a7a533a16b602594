"""Browsers that run elsewhere, by their CDP addresses: used like our own, and left as they were."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import websockets

from webgym_cli.config.browser import BrowserSettings
from webgym_cli.config.load import load
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.process import error_reason, redact_keys, require_address
from webgym_cli.environments.miniwob.environment import MiniWobPool
from webgym_cli.environments.web.environment import WebPool
from webgym_cli.errors import BoundaryError, SettingsError, VenvError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task

SMALL = SessionOptions(width=200, height=150, action_timeout=5.0, navigation_timeout=5.0)
SECRET = "sk-123"


class RemoteBrowser:
    """A Chromium that somebody else started, and its DevTools port."""

    def __init__(self, chromium: str, profile: Path) -> None:
        self.chromium = chromium
        self.profile = profile
        self.address = ""
        """Its WebSocket address."""
        self.port = 0

    async def start(self, port: int = 0) -> None:
        self.process = await asyncio.create_subprocess_exec(
            self.chromium,
            "--headless",
            "--no-sandbox",
            "--no-first-run",
            "--disable-gpu",
            f"--remote-debugging-port={port}",
            f"--user-data-dir={self.profile}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # it may be a shell script around the browser
        )
        assert self.process.stderr is not None
        async with asyncio.timeout(60):
            while b"DevTools listening on" not in (line := await self.process.stderr.readline()):
                assert line, "the browser ended"
        self.address = line.decode().split()[-1]
        self.port = urlsplit(self.address).port or 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.communicate()

    async def contexts(self) -> list[str]:
        """Ask the browser itself for the contexts that somebody made."""
        async with websockets.connect(self.address, proxy=None) as socket:
            await socket.send(json.dumps({"id": 1, "method": "Target.getBrowserContexts"}))
            return json.loads(await socket.recv())["result"]["browserContextIds"]


@pytest.fixture
async def remote(chromium: str, tmp_path: Path):
    browser = RemoteBrowser(chromium, tmp_path / "profile")
    try:
        await browser.start()
        yield browser
    finally:
        await browser.kill()


async def failure_of(doing) -> BoundaryError:
    with pytest.raises(BoundaryError) as failure:
        await doing
    return failure.value


@pytest.mark.browser
@pytest.mark.parametrize(("way", "mode"), list(zip(("http", "ws"), InteractionMode, strict=True)))
async def test_a_miniwob_episode_is_solved_in_a_remote_browser(remote: RemoteBrowser, mode: InteractionMode, way: str):
    url = remote.url if way == "http" else remote.address
    async with MiniWobPool(load(overrides=[f'browser.cdp_urls=["{url}"]']), mode) as pool:
        environment = pool.new()
        await environment.reset(Task(id="enter-text"), 3)
        assert len(await remote.contexts()) == 1
        while not (result := await environment.step(await environment.expert_action())).done:
            pass
        assert result.score is not None and result.score.value > 0
        await environment.close()
    assert remote.process.returncode is None
    assert await remote.contexts() == []


@pytest.mark.browser
async def test_a_web_page_and_its_popup_are_seen_in_a_remote_browser(remote: RemoteBrowser):
    async def answer(reader, writer):
        path = (await reader.readline()).split()[1].decode()
        body = f"<title>{path}</title><button onclick=\"window.open('/popup')\">Open</button><p>text</p>".encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    start = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/start"
    settings = load(overrides=[f'browser.cdp_urls=["{remote.url}"]', 'browser.private_hosts=["127.0.0.1"]'])
    async with server, WebPool(settings, InteractionMode.SET_OF_MARKS) as pool:
        environment = pool.new()
        _, view = await environment.reset(Task(id="t", start_url=start, environment="web"), 1)
        assert (view.url, view.title, [element.name for element in view.elements]) == (start, "/start", ["Open"])
        result = await environment.step(Action(name=ActionName.CLICK, element_id=view.elements[0].id))
        for _ in range(20):  # Playwright may hear of the popup late
            assert result.view is not None
            if result.view.title == "/popup":
                break
            result = await environment.step(Action(name=ActionName.WAIT, seconds=0.1))
        assert result.view is not None and result.view.title == "/popup"
        await environment.close()
    assert await remote.contexts() == []


@pytest.mark.browser
async def test_a_remote_browser_that_dies_is_named_and_used_again_once_it_is_back(remote: RemoteBrowser):
    async with BrowserPool(BrowserSettings(cdp_urls=(remote.url,))) as pool:
        session = await pool.session(SMALL)
        port = remote.port
        await remote.kill()
        assert (await failure_of(session.screenshot())).kind is FailureKind.BROWSER_CRASHED
        await session.close()
        boundary_error = await failure_of(pool.session(SMALL))
        assert boundary_error.kind is FailureKind.BROWSER_CRASHED
        assert f"the browser at http://127.0.0.1:{port} can't be reached" in str(boundary_error)
        shutil.rmtree(remote.profile)
        await remote.start(port)
        session = await pool.session(SMALL)
        assert await session.evaluate("() => 1 + 1") == 2
        await session.close()
    assert await remote.contexts() == []


@pytest.mark.browser
async def test_one_dead_browser_of_several_costs_no_episode(remote: RemoteBrowser):
    async with BrowserPool(BrowserSettings(cdp_urls=("http://127.0.0.1:9", remote.url))) as pool:
        sessions = await asyncio.gather(*(pool.session(SMALL) for _ in range(3)))
        assert [await session.evaluate("() => 3") for session in sessions] == [3, 3, 3]


async def test_an_address_where_no_browser_answers_is_one_clear_line():
    url = f"http://user:{SECRET}@127.0.0.1:9/x?token={SECRET}"
    with pytest.raises(VenvError) as caught:
        async with BrowserPool(BrowserSettings(cdp_urls=(url,))):
            raise AssertionError("it connected")
    text = str(caught.value)
    assert text.startswith("the browser at http://127.0.0.1:9 can't be reached: ") and "ECONNREFUSED" in text
    assert SECRET not in text and "\n" not in text and "browser.cdp_urls" in caught.value.hint
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("url", ["", "localhost:9222", "ftp://a", "http://", "ws://a:99999999"])
async def test_what_is_no_address_is_refused_before_anything_starts(url: str):
    with pytest.raises(SettingsError, match="is no address of a browser"):
        async with BrowserPool(BrowserSettings(cdp_urls=("http://127.0.0.1:9", url))):
            raise AssertionError("it connected")


@pytest.mark.parametrize("scheme", ["wss", "WSS", "https", "ftp"])
@pytest.mark.parametrize(
    "rest", ["u:SECRET@host:1/a?token=SECRET", "u:p@SECRET@host:1", "host:1#SECRET", "host:1/SECRET"]
)
def test_keys_in_addresses_are_not_shown(scheme, rest):
    assert redact_keys(f"to {scheme}://{rest.replace('SECRET', SECRET)} now") == f"to {scheme}://host:1 now"


def test_keys_in_messages_are_not_shown():
    wrong = (f"host:1?token={SECRET}", f"ftp://u:{SECRET}@host:1", f"user:{SECRET}@host:9222", f"host.example/{SECRET}")
    for url in (*wrong, f"http:/{SECRET}/x", f"ws:{SECRET}", f"//h/{SECRET}?x", SECRET):
        with pytest.raises(SettingsError, match="is no address of a browser") as refused:
            require_address(url)
        assert SECRET not in str(refused.value)
    long = f"BrowserType.connect_over_cdp: no\nanswer from ws://h/{SECRET}\nCall log:\n  - <ws> {SECRET}"
    assert error_reason(RuntimeError(long)) == "no answer from ws://h"
