"""A laboratory: fixed pages that each reproduce one behaviour of open web sites; no episode needed."""

import asyncio
import contextlib
import subprocess
from pathlib import Path

import pytest
from aiohttp import web
from jinja2 import FileSystemLoader

from webgym_cli.environments.fixture_hosts import SITE_HOSTS
from webgym_cli.environments.fixture_sites import environment
from webgym_cli.environments.fixture_sites import web as site_web
from webgym_cli.environments.fixture_sites.web import not_found_page
from webgym_cli.environments.sites import accounts

# Path and behaviour of each page.
PAGES = {
    "/popup": "window.open and a link with target=_blank",
    "/popup-child": "what /popup opens",
    "/dialogs": "alert, confirm, prompt, beforeunload",
    "/download": "a link to a download; ?auto=1 starts it by itself",
    "/endless": "a picture that never finishes loading",
    "/slow": "the first byte after ?seconds=",
    "/blank": "an empty document",
    "/heavy": "?nodes= elements",
    "/redirect": "goes ?to= another address",
    "/captcha": "asks whether the visitor is human, with status 403",
    "/error": "status 500",
    "/injection": "text that imitates tool calls, image tokens, chat marks and orders",
    "/storage": "writes and shows cookies, localStorage, sessionStorage and IndexedDB",
    "/iframe": "a frame of the same origin and one of another",
    "/framed": "what /iframe frames",
    "/spinner": "an animation without end",
    "/late": "its content comes 1.5 s after load",
    "/history": "pages made with pushState",
    "/canvas": "a picture that is drawn by a script",
    "/huge-text": "a megabyte of text",
    "/file.txt": "a file that is sent as a download",
}
_STATUSES = {"/captcha": 403, "/error": 500}


# `other.test` serves only frames of `lab.test` from another origin.
LAB_HOSTS = ("lab.test", "other.test")
# An image on every host that never finishes loading.
_ENDLESS = "/endless.gif"
_FOLDERS = (Path(__file__).with_name("lab_pages"), Path(site_web.__file__).with_name("templates"))
_TEMPLATES = site_web._load_templates().overlay(loader=FileSystemLoader(_FOLDERS))


class LabServer(environment.SiteServer):
    """The fixture sites and the laboratory."""

    hosts = (*SITE_HOSTS, *LAB_HOSTS)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        host = request.host.partition(":")[0].lower()
        if request.path == _ENDLESS:
            return await hang(request, self.closing)
        return await (serve(host, request) if host in LAB_HOSTS else super()._serve(request))


@contextlib.contextmanager
def served_with_sites():
    """Environments on the fixture sites serve the laboratory, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "SiteServer", LabServer)
        patch.setattr(accounts, "SITE_HOSTS", LabServer.hosts)
        yield


def render_page(template: str, status: int = 200, /, **values: object) -> web.Response:
    body = _TEMPLATES.get_template(template).render(values, status=status)
    return web.Response(text=body, status=status, content_type="text/html")


async def serve(host: str, request: web.Request) -> web.StreamResponse:
    """Return the response to a request to the laboratory."""
    path, query = request.path, request.query
    if host != "lab.test" and path != "/framed":
        return not_found_page()
    if path == "/file.txt":
        headers = {"Content-Disposition": 'attachment; filename="report.txt"'}
        return web.Response(text="A downloaded file.\n", headers=headers)
    if path == "/redirect":
        return web.Response(status=302, headers={"Location": query["to"], "Cache-Control": "no-store"})
    if path == "/slow":
        return await _slow(query.get("seconds", "3"))
    if path == "/heavy":
        return render_page("heavy.html", nodes=int(query.get("nodes", "10000")))
    if path == "/":
        return render_page("index.html", pages=PAGES)
    if path == "/blank":
        return web.Response(text="", content_type="text/html")
    if path not in PAGES:
        return not_found_page()
    return render_page(f"{path[1:]}.html", _STATUSES.get(path, 200), host=host, auto=query.get("auto") == "1")


async def hang(request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
    """Start an image that never completes, until the client disconnects or the server stops."""
    response = web.StreamResponse(headers={"Content-Type": "image/gif", "Cache-Control": "no-store"})
    await response.prepare(request)
    # A client that disconnects is no error: this page is made for it.
    with contextlib.suppress(ConnectionError):
        await response.write(b"GIF89a")
        await closing.wait()
    return response


async def _slow(seconds: str) -> web.Response:
    await asyncio.sleep(float(seconds))
    return render_page("slow.html", seconds=seconds)


def write_certificate(folder):
    """Write a certificate of this machine that nobody signed; return its file and that of its key."""
    subject = ("-subj", "/CN=mail", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    key, own = folder / "key.pem", folder / "own.pem"
    files = ("-keyout", str(key), "-out", str(own))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject], check=True)
    return own, key
