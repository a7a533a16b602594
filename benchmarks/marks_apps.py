"""Real applications to measure marks on, installed from the registries into a folder and served on loopback."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from webgym_cli.errors import JobError

PYTHON_PACKAGES = ("datasette~=0.65", "django~=5.2.0", "jupyterlab~=4.4", "sqlite-web~=0.8")
NODE_PACKAGES = (
    *("monaco-editor@0.52.2", "swagger-ui-dist@5", "redoc@2", "@shoelace-style/shoelace@2", "tabulator-tables@6"),
)
NPM_INSTALL = ("npm", "install", "--loglevel=error", "--no-audit", "--no-fund")
# What only the benchmark looks at.
MORE_NODE_PACKAGES = (
    *("drawflow@0.0.60", "fullcalendar@6.1.20", "tiddlywiki@5", "node-red@4"),
    *("ag-grid-community@34", "tinymce@7"),
)
MORE_PYTHON_PACKAGES = ("marimo~=0.25",)
_START_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class AppState:
    """One state of an application: an address, then clicks."""

    path: str
    clicks: tuple[str, ...] = ()
    """Playwright selectors that are clicked one after the other."""
    scroll: int = 0
    """CSS pixels."""
    keys: tuple[str, ...] = ()
    """Keys that are pressed then, in Playwright's names."""
    menu: str = ""
    """A selector that is clicked at last with the right button."""


@dataclass(frozen=True, slots=True)
class App:
    """An application and the states to look at."""

    name: str
    command: tuple[str, ...]
    """`{python}`, `{port}` and `{folder}` are filled in."""
    states: tuple[AppState, ...]
    is_aside: bool = False
    """Whether it is kept aside: measured like the others, but no rule was mended by it."""
    extra: str = ""
    """Selectors of what a person knows to be a control there, though nothing in the page says so."""


_API = {
    "openapi": "3.0.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        f"/{thing}": {
            verb: {"summary": f"{verb} {thing}", "tags": [thing], "responses": {"200": {"description": "ok"}}}
            for verb in ("get", "post", "delete")
        }
        for thing in ("orders", "users", "items")
    },
    "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X"}}},
}
_NOTE = {
    "cells": [],
    "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
_BOOK = """import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo

    size = mo.ui.slider(1, 9, label="Size")
    kind = mo.ui.dropdown(["red", "blue"], label="Kind")
    mo.vstack([size, kind, mo.ui.text(label="Name"), mo.ui.button(label="Go")])
    return


@app.cell
def _():
    1 + 1
    return
"""
# Without the tour of a first visit and the question about telemetry.
_RED = """module.exports = { uiHost: "127.0.0.1", flowFile: "flows.json", credentialSecret: false,
  editorTheme: { tours: false }, telemetry: { enabled: false } };
"""
_FLOW = [
    {"id": "t", "type": "tab", "label": "Flow 1"},
    {"id": "a", "z": "t", "type": "inject", "name": "begin", "x": 160, "y": 100, "wires": [["b"]], "repeat": ""},
    {
        "id": "b",
        "z": "t",
        "type": "function",
        "name": "work",
        "func": "return msg;",
        "outputs": 1,
        "x": 360,
        "y": 140,
        "wires": [["c"]],
    },
    {"id": "c", "z": "t", "type": "debug", "name": "show", "x": 560, "y": 100, "wires": []},
]
_ADMIN = """
import os, sys
import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.utils.functional import SimpleLazyObject
PARTS = ["admin", "auth", "contenttypes", "sessions", "messages", "staticfiles"]
class SignIn:
    def __init__(self, answer): self.answer = answer
    def __call__(self, request):
        from django.contrib.auth.models import User
        request.user = User.objects.get(username="ann")
        return self.answer(request)
M = "django.contrib."
settings.configure(DEBUG=True, SECRET_KEY="x", ROOT_URLCONF=__name__, STATIC_URL="/static/", ALLOWED_HOSTS=["*"],
    PASSWORD_HASHERS=[M + "auth.hashers.MD5PasswordHasher"],  # quick: 31 users are made before it answers
    INSTALLED_APPS=[M + part for part in PARTS], DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": __file__ + ".db",
        "OPTIONS": {"timeout": 60, "transaction_mode": "IMMEDIATE"}}},
    MIDDLEWARE=[M + "sessions.middleware.SessionMiddleware", "django.middleware.common.CommonMiddleware",
        M + "auth.middleware.AuthenticationMiddleware", M + "messages.middleware.MessageMiddleware", "__main__.SignIn"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
        "OPTIONS": {"context_processors": ["django.template.context_processors.request",
            M + "auth.context_processors.auth", M + "messages.context_processors.messages"]}}])
django.setup()
from django.contrib import admin
from django.urls import path
urlpatterns = [path("admin/", admin.site.urls)]
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.contrib.auth.models import User
for name in ["ann"] + [f"user{n}" for n in range(30)]:
    User.objects.filter(username=name).exists() or User.objects.create_superuser(name, f"{name}@x.test", "x")
execute_from_command_line(sys.argv)
"""
_PAGES = {
    "swagger.html": "<link rel=stylesheet href=node_modules/swagger-ui-dist/swagger-ui.css><div id=ui></div>"
    "<script src=node_modules/swagger-ui-dist/swagger-ui-bundle.js></script>"
    "<script>SwaggerUIBundle({ url: 'api.json', dom_id: '#ui' })</script>",
    "redoc.html": "<redoc spec-url=api.json></redoc>"
    "<script src=node_modules/redoc/bundles/redoc.standalone.js></script>",
    "shoelace.html": "<link rel=stylesheet href=node_modules/@shoelace-style/shoelace/cdn/themes/light.css>"
    "<script type=module src=node_modules/@shoelace-style/shoelace/cdn/shoelace.js></script>"
    "<sl-button>Save</sl-button> <sl-switch>Wifi</sl-switch> <sl-checkbox>Agree</sl-checkbox>"
    "<sl-input label=Name></sl-input>"
    "<sl-radio-group label=Size value=1><sl-radio value=1>Small</sl-radio>"
    "<sl-radio value=2>Large</sl-radio></sl-radio-group>"
    "<sl-select label=City><sl-option value=o>Oslo</sl-option><sl-option value=r>Rome</sl-option></sl-select>"
    "<sl-rating label=Stars></sl-rating> <sl-range label=Volume></sl-range>"
    "<sl-textarea label=Notes></sl-textarea>"
    "<sl-tab-group><sl-tab slot=nav panel=a>One</sl-tab><sl-tab slot=nav panel=b>Two</sl-tab>"
    "<sl-tab-panel name=a>first</sl-tab-panel><sl-tab-panel name=b>second</sl-tab-panel></sl-tab-group>"
    "<sl-details summary=More>text</sl-details><sl-dropdown><sl-button slot=trigger caret>Menu</sl-button><sl-menu>"
    "<sl-menu-item>Cut</sl-menu-item><sl-menu-item>Copy</sl-menu-item></sl-menu></sl-dropdown>"
    "<sl-icon-button name=gear label=Settings></sl-icon-button>"
    "<sl-button id=open onclick='d.show()'>Dialog</sl-button>"
    "<sl-dialog id=d label=Sure>Really?<sl-button slot=footer>Yes</sl-button></sl-dialog>",
    "monaco.html": "<div id=e style='height:400px'></div><button>Run</button>"
    "<script src=node_modules/monaco-editor/min/vs/loader.js></script><script>"
    "require.config({ paths: { vs: 'node_modules/monaco-editor/min/vs' } });"
    "require(['vs/editor/editor.main'], () =>"
    "monaco.editor.create(e, { value: 'let x = 1;\\n', language: 'javascript' }))</script>",
    "drawflow.html": "<link rel=stylesheet href=node_modules/drawflow/dist/drawflow.min.css>"
    "<style>#d { height: 500px; background: #eee }</style><button>Export</button><div id=d></div>"
    "<script src=node_modules/drawflow/dist/drawflow.min.js></script><script>"
    "const flow = new Drawflow(d); flow.start();"
    "flow.addNode('ask', 0, 1, 100, 60, 'ask', {}, '<b>Ask</b><input df-question placeholder=Question>');"
    "flow.addNode('send', 1, 1, 400, 160, 'send', {}, '<b>Send</b><select df-to title=To><option>mail</select>');"
    "flow.addConnection(1, 2, 'output_1', 'input_1');</script>",
    "tabulator.html": "<link rel=stylesheet href=node_modules/tabulator-tables/dist/css/tabulator.min.css>"
    "<div id=t></div>"
    "<script src=node_modules/tabulator-tables/dist/js/tabulator.min.js></script><script>"
    "new Tabulator(t, { layout: 'fitColumns', pagination: 'local', paginationSize: 12, columns: ["
    "{ title: 'Name', field: 'name', editor: 'input', headerFilter: 'input' }, { title: 'Age', field: 'age' },"
    "{ title: 'Paid', field: 'paid', editor: true, formatter: 'tickCross' }],"
    "data: Array.from({ length: 60 }, (_, id) => ({ id, name: 'Person ' + id, age: 20 + id, paid: id % 2 > 0 }))"
    "})</script>",
    "aggrid.html": "<div id=g style='height:460px'></div>"
    "<script src=node_modules/ag-grid-community/dist/ag-grid-community.min.js></script><script>"
    "agGrid.createGrid(g, { pagination: true, paginationPageSize: 20, rowSelection: { mode: 'multiRow' },"
    "columnDefs: [{ field: 'name', filter: true, editable: true, singleClickEdit: true },"
    "{ field: 'age', filter: 'agNumberColumnFilter', floatingFilter: true }, { field: 'paid', editable: true }],"
    "rowData: Array.from({ length: 60 }, (_, id) => ({ name: 'Person ' + id, age: 20 + id, paid: id % 2 > 0 })) })"
    "</script>",
    "tinymce.html": "<textarea id=t>Hello <a href='#x'>there</a></textarea><button>Send</button>"
    "<script src=node_modules/tinymce/tinymce.min.js></script><script>"
    "tinymce.init({ selector: '#t', license_key: 'gpl', height: 420, plugins: 'link lists table searchreplace' })"
    "</script>",
    "fullcalendar.html": "<div id=c></div><script src=node_modules/fullcalendar/index.global.min.js></script><script>"
    "new FullCalendar.Calendar(c, { initialDate: '2026-05-01', initialView: 'dayGridMonth', navLinks: true,"
    "height: 720, dayMaxEvents: 2, headerToolbar: { right: 'prev,next today', center: 'title',"
    "left: 'dayGridMonth,timeGridWeek,listMonth' }, eventClick: () => null,"
    "events: Array.from({ length: 9 }, (_, at) =>"
    "({ title: 'Meeting ' + at, start: '2026-05-0' + (5 + at % 3) + 'T1' + at + ':00' })) }).render()</script>",
}


def install(folder: Path, *, more: bool = False) -> None:
    """Install the applications; what is there already stays. Raises `JobError`.

    `more`: also those that only the benchmark looks at.
    """
    python, last = folder / "venv" / "bin" / "python", folder / "venv" / "bin" / "sqlite_web"
    if not last.exists():
        run_command([sys.executable, "-m", "venv", str(folder / "venv")])
        run_command([str(python), "-m", "pip", "install", "-q", *PYTHON_PACKAGES])
    if not shutil.which("npm"):
        sys.stderr.write("npm is missing: the applications of its registry are left out\n")
    else:
        wanted = (*NODE_PACKAGES, *(MORE_NODE_PACKAGES if more else ()))
        lacking = [package for package in wanted if not (folder / "node_modules" / package.rpartition("@")[0]).exists()]
        if lacking:
            run_command([*NPM_INSTALL, "--prefix", str(folder), *lacking])
    if more and not (folder / "venv" / "bin" / "marimo").exists():
        run_command([str(python), "-m", "pip", "install", "-q", *MORE_PYTHON_PACKAGES])
    if more and not (folder / "wiki").exists():
        script = folder / "node_modules" / "tiddlywiki" / "tiddlywiki.js"
        run_command(["node", str(script), str(folder / "wiki"), "--init", "server"])
    (folder / "red").mkdir(exist_ok=True)
    (folder / "red" / "settings.js").write_text(_RED, encoding="utf-8")
    (folder / "red" / "flows.json").write_text(json.dumps(_FLOW), encoding="utf-8")
    for name, html in _PAGES.items():
        (folder / name).write_text(f"<!doctype html><meta charset=utf-8><title>{name}</title>{html}", encoding="utf-8")
    (folder / "api.json").write_text(json.dumps(_API), encoding="utf-8")
    (folder / "admin.py").write_text(_ADMIN, encoding="utf-8")
    (folder / "note.ipynb").write_text(json.dumps(_NOTE))
    (folder / "book.py").write_text(_BOOK, encoding="utf-8")
    run_command([str(python), "-c", _DATA, str(folder / "data.db")])


_DATA = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as base:
    base.execute("create table if not exists people (id integer primary key, name text, city text, age integer)")
    rows = [(n, f"Person {n}", ["Oslo", "Rome", "Lima"][n % 3], n % 80) for n in range(1, 300)]
    base.executemany("insert or ignore into people values (?, ?, ?, ?)", rows)
"""


def run_command(command: list[str]) -> None:
    """Run a command to its end. Raises `JobError` with the last lines that it wrote."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = " ".join(done.stderr.strip().splitlines()[-3:])  # npm's last line only names its log
        raise JobError(f"{command[0]} failed: {last}", hint="install it by hand")


@contextmanager
def serve(app: App, folder: Path) -> Iterator[str]:
    """Run an application; yields its address. Raises `JobError` when it does not answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = {"python": str(folder / "venv" / "bin" / "python"), "port": str(port), "folder": str(folder)}
    running = subprocess.Popen(
        [part.format(**words) for part in app.command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + _START_SECONDS
        while not _answers(port):
            if running.poll() is not None or time.monotonic() > end:
                raise JobError(f"{app.name} did not start", hint="run its command by hand")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        for child in psutil.Process(running.pid).children(recursive=True) if running.poll() is None else []:
            child.kill()
        running.kill()
        running.wait()


def _answers(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1.0)
        return client.connect_ex(("127.0.0.1", port)) == 0
