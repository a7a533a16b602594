"""The gate: what goes through it, what does not, and that nothing goes past it."""

import asyncio
import contextlib
import errno
import hashlib
import socket

import psutil
import pytest

from tests.environments.odd_server import OddServer
from tests.environments.visits import SmallWeb, Visit
from webgym_cli.environments.browser.address_rules import AddressRules
from webgym_cli.environments.browser.egress_proxy import EgressProxy
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind

PUBLIC = "93.184.216.34"


@pytest.fixture
async def server():
    async with OddServer(pages={"/page": "<h1>page</h1>"}) as odd:
        yield odd


@pytest.fixture
async def gate(server: OddServer):
    async with EgressProxy(AddressRules().with_places({"odd.test": server.place})) as opened:
        yield opened


@pytest.fixture
def names(monkeypatch):
    """Resolve these names to these addresses, one list a question; the last one again and again."""
    known: dict[str, list[list[str]]] = {}

    async def getaddrinfo(self, host, port, **options):
        answers = known.get(host, [[host]])
        result = answers.pop(0) if len(answers) > 1 else answers[0]
        kinds = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in result]
        return [(kind, 1, 6, "", (address, port)) for kind, address in zip(kinds, result, strict=True)]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return known


@pytest.fixture
def errors() -> dict[str, OSError]:
    """Errors of the connections to addresses, by address."""
    return {}


@pytest.fixture
def connected(monkeypatch, server: OddServer, errors):
    """Note where the gate connects to, and lead it to the local server instead, or to an error."""
    places = []

    async def open_connection(host, port, **options):
        places.append((host, port))
        if error := errors.get(host):
            raise error
        return await _open_connection(*((host, port) if host == "127.0.0.1" else server.place), **options)

    monkeypatch.setattr("webgym_cli.environments.browser.egress_proxy.asyncio.open_connection", open_connection)
    return places


_open_connection = asyncio.open_connection


async def connect(gate: EgressProxy):
    host, port = gate.address.removeprefix("http://").split(":")
    return await _open_connection(host, int(port))


async def speak(gate: EgressProxy, *requests: bytes) -> bytes:
    """Send requests over one connection and return all that comes back until it ends."""
    reader, writer = await connect(gate)
    for request in requests:
        writer.write(request)
    await writer.drain()
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


def get(url: str, *fields: str) -> bytes:
    host = url.split("/")[2]
    return "\r\n".join([f"GET {url} HTTP/1.1", f"Host: {host}", *fields, "", ""]).encode()


# --- what is refused


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "10.0.0.1", "169.254.169.254", "[fe80::1]"]
)
@pytest.mark.parametrize("tunnel", [False, True])
async def test_private_hosts_are_refused(gate: EgressProxy, server: OddServer, host: str, tunnel: bool):
    place = f"{host}:{server.port}"
    request = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode() if tunnel else get(f"http://{place}/page")
    answer = await speak(gate, request)
    assert answer.startswith(b"HTTP/1.1 403") and b"private address" in answer
    assert server.hits == []
    assert "private address" in gate.refusal(f"http://{place}/other")
    assert gate.refusal("http://odd.test/") is None


@pytest.mark.parametrize("spelling", ["2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1."])
async def test_every_spelling_of_this_machine_is_refused(gate: EgressProxy, server: OddServer, spelling: str):
    answer = await speak(gate, get(f"http://{spelling}:{server.port}/page"))
    assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 502"))
    assert server.hits == []


@pytest.mark.parametrize(
    "texts",
    [["127.0.0.1"], ["10.1.2.3"], [PUBLIC, "192.168.1.1"], ["::1", PUBLIC], ["::ffff:127.0.0.1"], ["fe80::1%2"]],
)
async def test_names_that_lead_to_private_addresses_are_refused(gate: EgressProxy, names, connected, texts: list[str]):
    names["trick.example"] = [texts]
    answer = await speak(gate, get("http://trick.example/page"))
    assert answer.startswith(b"HTTP/1.1 403") and b"leads to a private address" in answer
    assert connected == []


async def test_the_address_that_was_checked_is_the_one_that_is_used(gate, names, connected, server):
    names["rebinds.example"] = [[PUBLIC], ["127.0.0.1"]]
    assert b"<h1>page</h1>" in await speak(gate, get("http://rebinds.example/page"))
    assert connected == [(PUBLIC, 80)]  # asked for once, by name never
    assert (await speak(gate, get("http://rebinds.example/page"))).startswith(b"HTTP/1.1 403")
    assert len(connected) == 1 and len(server.hits) == 1


async def test_a_refusal_lasts_as_long_as_its_reason(gate: EgressProxy, names, connected):
    names["changes.example"] = [["10.0.0.1"], [PUBLIC]]
    await speak(gate, get("http://changes.example/page"))
    assert gate.refusal("http://changes.example/")
    await speak(gate, get("http://changes.example/page"))
    assert gate.refusal("http://changes.example/") is None


async def test_the_setting_opens_what_it_names_only(server: OddServer, names):
    names["intranet.example"] = names["other.example"] = [["127.0.0.1"]]
    rules = AddressRules.of(["intranet.example"])
    async with EgressProxy(rules) as gate:
        assert b"<h1>page" in await speak(gate, get(f"http://intranet.example:{server.port}/page"))
        for host in ("127.0.0.1", "other.example", "localhost"):
            assert b" 403 " in await speak(gate, get(f"http://{host}:{server.port}/page"))
    async with EgressProxy(AddressRules.of(["127.0.0.0/8"])) as gate:
        assert b"<h1>page" in await speak(gate, get(f"http://127.0.0.1:{server.port}/page"))
    assert len(server.hits) == 2


async def test_one_connection_carries_one_host(gate: EgressProxy, server: OddServer):
    async with OddServer(pages={"/page": "secret"}) as private:
        second = get(f"http://127.0.0.1:{private.port}/page")
        await speak(gate, get("http://odd.test/page", "Connection: keep-alive") + second)
        await speak(gate, get("http://odd.test/page", "Connection: keep-alive"), second)
        assert private.hits == []
    assert set(server.hosts) <= {"odd.test"}


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\n\r\n",
        b"CONNECT odd.test:99999 HTTP/1.1\r\n\r\n",
        b"GET http://" + b"a" * 70 + b".example/ HTTP/1.1\r\n\r\n",
        b"GET http://odd.test/ HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_no_request_ends_the_connection_only(gate: EgressProxy, server: OddServer, request_: bytes):
    answer = await speak(gate, request_)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 502")
    assert b"<h1>page" in await speak(gate, get("http://odd.test/page"))


async def test_a_gate_that_closes_ends_what_is_open(server: OddServer):
    async with EgressProxy(AddressRules().with_places({"odd.test": server.place})) as gate:
        silent = asyncio.create_task(speak(gate, get("http://odd.test/silent")))
        await asyncio.wait_for(server.came.wait(), 10)
    assert await asyncio.wait_for(silent, 10) == b""
    await asyncio.wait_for(server.left.wait(), 10)


# --- what goes through


async def test_bodies_go_through_whole(gate: EgressProxy):
    body = bytes(range(256)) * 20_000
    head = f"POST http://odd.test/echo HTTP/1.1\r\nHost: odd.test\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    answer = await speak(gate, head, body)
    assert answer.endswith(f"{len(body)} {hashlib.sha256(body).hexdigest()}".encode())


async def test_an_early_answer_to_a_large_body_arrives(server: OddServer):
    async def hasty(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        await writer.drain()
        while await reader.read(65536):
            pass
        writer.close()

    listening = await asyncio.start_server(hasty, "127.0.0.1", 0)
    place = listening.sockets[0].getsockname()[:2]
    async with EgressProxy(AddressRules().with_places({"hasty.test": place})) as gate:
        reader, writer = await connect(gate)
        writer.write(b"POST http://hasty.test/ HTTP/1.1\r\nHost: hasty.test\r\nContent-Length: 99\r\n\r\nx")
        assert (await asyncio.wait_for(reader.readuntil(b"big"), 10)).startswith(b"HTTP/1.1 413")
        writer.close()
    listening.close()


async def test_a_visitor_who_hangs_up_is_gone_for_the_site_too(gate: EgressProxy, server: OddServer):
    _, writer = await connect(gate)
    writer.write(get("http://odd.test/silent"))
    await asyncio.wait_for(server.came.wait(), 10)
    writer.close()
    await asyncio.wait_for(server.left.wait(), 10)


async def test_a_site_that_is_down_is_told(gate: EgressProxy, names):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with EgressProxy(AddressRules.of(["127.0.0.1"])) as open_gate:
        answer = await speak(open_gate, get(f"http://127.0.0.1:{port}/"))
    assert answer.startswith(b"HTTP/1.1 502")
    assert await speak(gate, get("http://odd.test/hang-up")) == b""


# --- with a browser


ATTACK = """async ([place, udp]) => {
  const http = `http://${place}/secret`, tries = [];
  const within = (promise) => Promise.race([promise, new Promise((done) => setTimeout(done, 1500))]).catch(() => null);
  tries.push(fetch(http), fetch(http, { method: "POST", mode: "no-cors", body: "x" }));
  tries.push(fetch(`http://localhost:${place.split(":")[1]}/secret`, { mode: "no-cors" }));
  navigator.sendBeacon(http, "x");
  for (const [tag, name] of [["img", "src"], ["script", "src"], ["iframe", "src"], ["video", "src"], ["embed", "src"],
                             ["object", "data"], ["link", "href"]]) {
    const element = document.createElement(tag);
    if (tag === "link") element.rel = "stylesheet";
    tries.push(new Promise((done) => { element.onload = element.onerror = done; }));
    element[name] = http;
    document.body.append(element);
  }
  for (const address of [`ws://${place}/socket`, `wss://${place}/socket`]) {
    const socket = new WebSocket(address);
    tries.push(new Promise((done) => { socket.onclose = socket.onopen = done; }));
  }
  const events = new EventSource(http);
  tries.push(new Promise((done) => { events.onerror = done; }));
  const worker = new Worker(URL.createObjectURL(new Blob([`fetch("${http}", { mode: "no-cors" })`])));
  tries.push(new Promise((done) => { worker.onmessage = done; }));
  const servers = [`stun:127.0.0.1:${udp}`, `turn:127.0.0.1:${udp}`, `turn:${place}?transport=tcp`];
  if (window.RTCPeerConnection) {
    const peer = new RTCPeerConnection({ iceServers: [{ urls: servers, username: "a", credential: "b" }] });
    peer.createDataChannel("x");
    await peer.setLocalDescription(await peer.createOffer());
  }
  await Promise.all(tries.map(within));
  return "tried";
}"""


@pytest.mark.browser
async def test_no_request_of_a_page_reaches_this_machine(visit: Visit, local_web: SmallWeb):
    local_web.odd.pages["/attack"] = "<title>attack</title><h1>attack</h1>"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        await visit.open("http://odd.test/attack")
        place = f"127.0.0.1:{local_web.private.port}"
        assert await visit.ask(ATTACK, [place, udp.getsockname()[1]]) == "tried"
        with pytest.raises(BlockingIOError):
            udp.recv(1)
    assert local_web.private.hits == []


@pytest.mark.browser
async def test_links_and_redirects_to_this_machine_are_step_errors(visit: Visit, local_web: SmallWeb):
    secret = f"{local_web.private.url}/secret"
    await visit.show(
        "/ways",
        f"<title>ways</title><a href='{secret}'>link</a> <a href='{secret}' target=_blank>tab</a>"
        f" <button onclick=\"location.href='{secret}'\">script</button>"
        f" <form action='{secret}'><button>form</button></form>"
        f" <a href='/away?to={secret}'>redirect</a>",
    )
    for way in ("link", "tab", "script", "form", "redirect"):
        view = await visit.click(way)
        assert visit.error == "127.0.0.1 is a private address", way
        assert view.url.startswith(local_web.private.url)
        assert (await visit.back()).title == "ways", way
        assert visit.error is None
    assert local_web.private.hits == []


@pytest.mark.browser
@pytest.mark.parametrize(
    "url",
    [
        "http://2130706433:{port}/",
        "http://0177.0.0.1:{port}/",
        "http://①②⑦.0.0.1:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://127.0.0.1:{port}\\@odd.test/",
        "http://odd.test/away?to=http://127.0.0.1:{port}/",
        "view-source:http://127.0.0.1:{port}/",
    ],
)
async def test_the_policy_can_not_navigate_there(visit: Visit, local_web: SmallWeb, url: str):
    """What Chromium makes of a spelling; test_address_rules.py has the other addresses and schemes."""
    await visit.open("http://lab.test/history")
    view = await visit.navigate(url.format(port=local_web.private.port))
    assert visit.error and not visit.view.url.startswith(("file:", "chrome:", "view-source:", "data:"))
    assert view.notices == () and local_web.private.hits == []


@pytest.mark.browser
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{port}/", "file:///etc/passwd", "http://odd.test/away?to=http://127.0.0.1:{port}/"]
)
async def test_a_task_can_not_start_there(visit: Visit, local_web: SmallWeb, url: str):
    failure = await visit.refused(url.format(port=local_web.private.port))
    assert failure.kind is FailureKind.ADDRESS_REFUSED
    assert local_web.private.hits == []


@pytest.mark.browser
async def test_pages_can_not_open_files(visit: Visit, local_web: SmallWeb):
    await visit.show(
        "/files",
        "<title>files</title><a href='file:///etc/passwd'>link</a> <a href='chrome://version' target=_blank>tab</a>"
        " <button onclick=\"window.open('file:///etc/passwd')\">open</button><iframe src='file:///etc/passwd'></iframe>",
    )
    for way in ("link", "tab", "open"):
        view = await visit.click(way)
        assert not view.url.startswith(("file:", "chrome:"))
        assert "root:" not in await visit.text()
        if view.title != "files":
            await visit.back()


@pytest.mark.browser
async def test_what_pages_need_goes_through(visit: Visit, local_web: SmallWeb):
    await visit.show("/works", "<title>works</title><h1>works</h1>")
    size = 2**20
    echoed = await visit.ask(
        f"() => fetch('/echo', {{ method: 'POST', body: new Uint8Array({size}) }}).then((r) => r.text())"
    )
    assert echoed == f"{size} {hashlib.sha256(bytes(size)).hexdigest()}"
    size = 5 * 2**20
    assert await visit.ask("() => fetch('/large').then((r) => r.arrayBuffer()).then((b) => b.byteLength)") == size
    pieces = await visit.ask("() => fetch('/pieces').then((r) => r.text())")
    assert pieces == "".join(f"{number};" for number in range(50))
    text = """() => new Promise((done, failed) => {
      const socket = new WebSocket("ws://odd.test/socket");
      socket.onopen = () => socket.send("hello");
      socket.onmessage = (event) => { done(event.data); socket.close(); };
      socket.onerror = () => failed(new Error("no socket"));
    })"""
    assert await visit.ask(text) == "heard hello"
    many = "() => Promise.all(Array.from({ length: 40 }, (_, n) => fetch('/echo?' + n).then((r) => r.status)))"
    assert await visit.ask(many) == [200] * 40


@pytest.mark.browser
async def test_nothing_goes_past_the_gate(local_web: SmallWeb):
    process = local_web.pool.browsers._places[0].process
    lines = []
    for pid in process.processes():
        with contextlib.suppress(psutil.Error):
            lines.append(" ".join(psutil.Process(pid).cmdline()))
    browser = next(line for line in lines if "--user-data-dir=" in line)
    assert f"--proxy-server={local_web.pool.gate.address}" in browser
    assert "--proxy-bypass-list=<-loopback>" in browser
    assert "--force-webrtc-ip-handling-policy=disable_non_proxied_udp" in browser


REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


async def try_hosts(errors, names, *failing, error=REFUSED):
    """Ask the gate for these hosts, each with an address of its own, to which no connection can be made."""
    async with EgressProxy(AddressRules()) as gate:
        for number, host in enumerate(failing):
            names[host] = [[f"93.184.216.{number + 1}"]]
            errors[f"93.184.216.{number + 1}"] = error
            assert b" 502 " in await speak(gate, get(f"http://{host}/page"))
        yield gate


@pytest.mark.parametrize(
    ("failing", "error", "out"),
    [
        (("a.example",), REFUSED, False),
        (("a.example", "b.example"), REFUSED, False),
        (("a.example", "b.example", "c.example"), REFUSED, True),
        (("a.example",), OSError(errno.ENETUNREACH, "Network is unreachable"), True),
        (("a.example",), socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), True),
        (("a.example",), socket.gaierror(socket.EAI_NONAME, "Name or service not known"), False),
        (("a.example",), OSError(errno.EHOSTUNREACH, "No route to host"), False),
    ],
)
@pytest.mark.usefixtures("connected")
async def test_an_outage_is_told_from_a_dead_site(errors, names, failing, error, out):
    async for gate in try_hosts(errors, names, *failing, error=error):
        assert bool(gate.find_outage("http://a.example/x")) is out
        assert bool(gate.find_outage("chrome-error://chromewebdata/")) is out
        assert gate.find_outage("http://other.example/") == "", "it was not tried"
        assert gate.find_silent("http://other.example/", "http://a.example/x").startswith("a.example:80 does not")
        assert gate.find_silent("http://a.example:8080/", "https://a.example/", "") == "", "another server"
        with pytest.raises(BoundaryError, match="/x can't be loaded") as caught:
            gate.require_reached("http://a.example/x")
        assert (caught.value.kind is FailureKind.NETWORK_UNAVAILABLE) is out
        gate.require_reached("http://other.example/")
        names["alive.example"] = [[PUBLIC]]
        assert b"<h1>page" in await speak(gate, get("http://alive.example/page"))
        assert gate.find_outage("http://a.example/x") == ""


@pytest.mark.usefixtures("connected")
async def test_a_refused_host_is_no_sign_of_an_outage(errors, names):
    async for gate in try_hosts(errors, names, "a.example", "b.example"):
        names["inside.example"] = [["10.0.0.1"]]
        assert b" 403 " in await speak(gate, get("http://inside.example/page"))
        assert gate.find_outage("http://a.example/") == ""
