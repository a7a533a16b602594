"""Tasks on applications that nobody here wrote, in both modes; what came of them is read on the server's side."""

import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.marks_apps import serve
from benchmarks.marks_states import APPS
from tests.environments.apps.install import apps_folder
from tests.environments.apps.killed import copy_apps, roll_and_kill
from webgym_cli.config.load import load
from webgym_cli.environments.base import RawObservation
from webgym_cli.environments.browser.actions import normalise_point
from webgym_cli.environments.browser.observe import list_elements
from webgym_cli.environments.web.environment import WebEnvironment, WebPool
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.task import Task

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.timeout(300)]

# So often, half a second apart, an element or an effect is looked for.
TRIES = 60
CODE = """def squares(n):
    return [x * x for x in range(n)]

open("made.txt", "w").write(str(squares(4)))"""
SCRIPT = 'function add(a, b) {\n  return [a + b];\n}\nadd(1, "x");'


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What the applications serve and change; a copy, beside what was installed."""
    installed = apps_folder()
    if not (installed / "venv/bin/sqlite_web").exists():
        pytest.skip("the applications are not installed: python -m tests.environments.apps.install")
    return copy_apps(tmp_path_factory.mktemp("apps"))


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[Callable[[str], str]]:
    """Starts an application once and returns its address."""
    with ExitStack() as stack:
        known: dict[str, str] = {}

        def start(name: str) -> str:
            if name not in known:
                known[name] = stack.enter_context(serve(next(app for app in APPS if app.name == name), folder))
            return known[name]

        yield start


@dataclass
class Agent:
    """Who acts: by numbers of marks, or at points; named elements stand for what a policy sees."""

    environment: WebEnvironment
    mode: InteractionMode
    view: RawObservation | None = None
    error: str | None = None

    async def open(self, url: str) -> None:
        _, self.view = await self.environment.reset(Task(id="t", environment="web", start_url=url), 0)

    async def act(self, name: ActionName, target: str | None = None, role: str | None = None, **fields) -> None:
        for prefix, wanted in (("", target), ("to_", fields.pop("to", None))):
            seen = await self._find(wanted, role) if wanted is not None else None
            options = self.environment.session.options
            if seen and self.mode is InteractionMode.SET_OF_MARKS:
                fields[f"{prefix}element_id"] = seen.element.id
            elif seen:
                fields[f"{prefix}coordinate"] = normalise_point(seen.point, (options.width, options.height))
        result = await self.environment.step(Action(name=name, **fields))
        self.view, self.error = result.view, result.action_error
        assert self.error is None, f"{name} {target}: {self.error}"

    async def _find(self, target: str, role: str | None):
        for _ in range(TRIES):
            seen = await list_elements(self.environment.session)
            for one in seen:
                if one.element.name.startswith(target) and role in (None, one.element.role):
                    return one
            await self.act(ActionName.WAIT, seconds=0.5)
        raise AssertionError(f"no {role} {target!r} among {[(one.element.role, one.element.name) for one in seen]}")

    async def scroll_to_end(self) -> None:
        for _ in range(TRIES):
            result = await self.environment.step(Action(name=ActionName.SCROLL, direction="down"))
            if result.action_error is not None:
                break
        assert "nothing moved" in result.action_error

    async def wait_for(self, effect: Callable[[], bool]) -> bool:
        for _ in range(TRIES):
            if effect():
                return True
            await self.act(ActionName.WAIT, seconds=0.5)
        return False


@pytest.fixture(scope="module", params=InteractionMode)
async def agent(request, chromium, folder) -> AsyncIterator[Agent]:
    async with WebPool(load(overrides=["browser.private_hosts=[127.0.0.1]"]), request.param) as pool:
        result = Agent(pool.new(), request.param)
        yield result
        await result.environment.close()


def rows(database: Path, query: str) -> list[tuple]:
    with sqlite3.connect(database) as base:
        return base.execute(query).fetchall()


async def test_an_admin_s_users_are_added_changed_and_deleted(agent: Agent, address, folder: Path):
    users, name = folder / "admin.py.db", f"eve_{agent.mode}"
    await agent.open(f"{address('django-admin')}/admin/")
    await agent.act(ActionName.CLICK, "Users", "link")
    await agent.act(ActionName.CLICK, "Add user")
    await agent.act(ActionName.TYPE, "Username", text=name)
    await agent.act(ActionName.TYPE, "Password:", text="long-Enough-4711")
    await agent.act(ActionName.TYPE, "Password confirmation", text="long-Enough-4711\n")
    who = f"from auth_user where username = '{name}'"
    assert rows(users, f"select is_staff {who}") == [(0,)]
    await agent.act(ActionName.TYPE, "First name", text="Eve")
    await agent.act(ActionName.TYPE, "Email address", text="eve@example.com")
    await agent.act(ActionName.SCROLL, direction="down")
    await agent.act(ActionName.CLICK, "Staff status", "checkbox")
    await agent.scroll_to_end()
    await agent.act(ActionName.CLICK, "Save and continue editing")
    assert rows(users, f"select first_name, email, is_staff {who}") == [("Eve", "eve@example.com", 1)]
    await agent.act(ActionName.NAVIGATE, url=f"{address('django-admin')}/admin/auth/user/?q={name}")
    await agent.act(ActionName.CLICK, "Select this object", "checkbox")
    await agent.act(ActionName.SELECT_OPTION, "Action", "combobox", text="Delete selected users")
    await agent.act(ActionName.CLICK, "Go", "button")
    await agent.act(ActionName.CLICK, "Yes, I")
    assert rows(users, f"select * {who}") == []


async def test_a_database_s_rows_are_written_and_queried(agent: Agent, address, folder: Path):
    base, name = folder / "data.db", f"Zoe {agent.mode}"
    await agent.open(f"{address('sqlite-web')}/")
    await agent.act(ActionName.CLICK, "people", "link")
    await agent.act(ActionName.CLICK, "Insert", "link")
    for field, text in (("name", name), ("city", "Bergen"), ("age", "33")):
        await agent.act(ActionName.TYPE, field, "textbox", text=text)
    await agent.act(ActionName.CLICK, "Insert", "button")
    assert rows(base, f"select city, age from people where name = '{name}'") == [("Bergen", 33)]
    await agent.act(ActionName.CLICK, "Query", "link")
    await agent.act(ActionName.TYPE, "sql", "textbox", text=f"update people set age = age + 1\nwhere name = '{name}'")
    await agent.act(ActionName.CLICK, "Execute", "button")
    assert rows(base, f"select age from people where name = '{name}'") == [(34,)]


async def test_a_notebook_s_cell_is_replaced_run_and_saved(agent: Agent, address, folder: Path):
    path, note = folder / "made.txt", folder / f"note-{agent.mode}.ipynb"
    path.unlink(missing_ok=True)
    shutil.copy(folder / "note.ipynb", note)
    await agent.open(f"{address('jupyterlab')}/lab/tree/{note.name}?reset")
    await agent.act(ActionName.TYPE, "", "textbox", text="wrong = (")
    await agent.act(ActionName.TYPE, "", "textbox", text=CODE)
    await agent.act(ActionName.KEY, keys=("Shift", "Enter"))
    assert await agent.wait_for(path.is_file)
    assert path.read_text() == "[0, 1, 4, 9]"
    await agent.act(ActionName.KEY, keys=("Control", "s"))
    assert await agent.wait_for(lambda: len(json.loads(note.read_text())["cells"]) == 2)
    assert "".join(json.loads(note.read_text())["cells"][0]["source"]) == CODE


async def test_a_code_editor_s_text_is_replaced(agent: Agent, address, folder: Path):
    if not (folder / "node_modules/monaco-editor").exists():
        pytest.skip("without npm there is no editor: python -m tests.environments.apps.install")
    await agent.open(f"{address('monaco')}/monaco.html")
    held = "() => monaco.editor.getModels()[0].getValue()"
    await agent.act(ActionName.TYPE, "Editor content", text=SCRIPT)
    assert await agent.environment.session.page.evaluate(held) == SCRIPT
    await agent.act(ActionName.TYPE, "Editor content", text="\nmore((", append=True)
    assert await agent.environment.session.page.evaluate(held) == SCRIPT + "\nmore(("
    await agent.act(ActionName.TYPE, here=True, text="")
    assert await agent.environment.session.page.evaluate(held) == ""


async def test_a_plan_s_tasks_are_renamed_dated_and_moved_to_another_board(agent: Agent, address, folder: Path):
    if not (folder / "node_modules/tabulator-tables").exists():
        pytest.skip("without npm there is no grid: python -m tests.environments.apps.install")
    shutil.copy(Path(__file__).with_name("plan.html"), folder)
    await agent.open(f"{address('monaco')}/plan.html")
    await agent.act(ActionName.TYPE, "row 2, column Task", text="Check\n")
    await agent.act(ActionName.CLICK, "row 2, column Due")
    await agent.act(ActionName.TYPE, here=True, text="2026-07-09")
    await agent.act(ActionName.TYPE, "row 3, column Hours", text="12\n")
    await agent.act(ActionName.DRAG, "row 2, column 1", to="row 1, column Finished")
    kept = await agent.environment.session.page.evaluate("() => [tables.open.getData(), tables.done.getData()]")
    assert [(one["task"], one["due"], one["hours"]) for one in kept[0]] == [
        ("Write", "2026-05-01", 0),
        ("Ship", "2026-05-01", 12),
    ]
    assert sorted((one["task"], one["due"]) for one in kept[1]) == [("Check", "2026-07-09"), ("Plan", "2026-05-01")]


def test_a_rollout_on_applications_that_is_killed_and_resumed(chromium, tmp_path: Path, folder: Path):
    """Each episode is stored once, and its effect is there; 200 of them: `python -m tests.environments.apps.killed`."""
    assert roll_and_kill(copy_apps(tmp_path), 8)["stored before the kill"] >= 2
