"""`configs/own-site`: Django's admin as a training ground, with a database for each episode."""

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import forked
from tests.environments.apps.install import apps_folder
from tests.own_pages import chromium
from tests.record.test_live import record_by
from webgym_cli.config.shipped import shipped_root
from webgym_cli.environments.sites.site_expert import EXPERTS
from webgym_cli.environments.sites.site_setup import SETUPS
from webgym_cli.records.task import Split
from webgym_cli.scoring.check import CHECKS
from webgym_cli.store.buffer import scan_stored
from webgym_cli.store.run import RunDir

__all__ = ["chromium"]

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.timeout(300)]

PASSWORDS = {"DESK_AGENT": "agent-password-1", "DESK_BOSS": "boss-password-1"}
FULL = ("-s", "context_config.prompt_version=full")  # it has uploads


@pytest.fixture
def site(tmp_path, monkeypatch):
    """The folder of a user with the shipped files, beside the running application; yields folder and settings."""
    python = apps_folder() / "venv/bin/python"
    if not python.exists():
        pytest.skip("the applications are not installed: python -m tests.environments.apps.install")
    shutil.copytree(shipped_root() / "own-site", tmp_path, dirs_exist_ok=True)
    for name, value in PASSWORDS.items():
        monkeypatch.setenv(name, value)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (tmp_path / "app.log").open("wb") as log:
        server = subprocess.Popen(
            [str(python), "serve.py", str(port), "tenants"], cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_for(url, server, tmp_path / "app.log")
        yield tmp_path, ("-c", "site.yaml", "-s", f"sites.desk.url={url}", "-s", f"browser.auth_folder={tmp_path}/auth")
    finally:
        server.kill()
        server.wait()


def wait_for(url: str, server: subprocess.Popen, log: Path) -> None:
    while server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/login/", timeout=5)
        except OSError:
            time.sleep(0.2)
        else:
            return
    pytest.fail(log.read_text())


def webgym(folder: Path, *arguments: str, code: int | None = 0) -> str:
    done = forked.webgym(*arguments, cwd=folder, code=code)
    return done.stdout + done.stderr


def read_tasks(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_experts_do_all_kinds_of_tasks_each_in_its_own_database_and_checks_see_it(site):
    folder, settings = site
    webgym(folder, "tasks", "expand", "templates.yaml", "-o", "tasks.jsonl")
    train, test = (read_tasks(folder / name) for name in ("tasks.jsonl", "tasks.test.jsonl"))
    assert (len(train), len(test)) == (432, 44)
    names = {quoted for one in train for quoted in re.findall('"(.+?)"', one["instruction"])}
    assert names.isdisjoint(re.findall('"(.+?)"', "".join(one["instruction"] for one in test)))
    webgym(folder, "tasks", "expand", "larger.yaml", "-o", "larger.jsonl")
    # the experts' page elements are a template's: one task of each is enough
    kinds = {one["id"].split("-")[0]: one for one in (*test, *read_tasks(folder / "larger.test.jsonl"))}
    assert len(kinds) == 10
    (folder / "tasks.test.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kinds.values()))
    webgym(folder, "rollout", "run", *settings, "--split", "test", "--policy", "oracle", "--episodes", "10", *FULL)
    (part,) = folder.glob("run/test_trajectories/*/part-*.jsonl")
    episodes = read_tasks(part)
    assert [one["outcome"]["reward"] for one in episodes if one["outcome"]["failure"] is None] == [1.0] * 10
    assert len({one["final"]["state"]["tenant"] for one in episodes}) == len(episodes)
    assert "10 solved" in webgym(folder, "score", "run", "--check", "--all", "--split", "test")
    stored = "".join(file.read_text(errors="replace") for file in (folder / "run").rglob("*") if file.is_file())
    assert not any(password in stored for password in PASSWORDS.values())


def test_the_commands_of_the_guide_try_the_site_and_its_first_lesson(site):
    folder, settings = site
    seen = webgym(folder, "doctor", *settings, "--json", code=None)  # this machine may lack other parts
    rows = (json.loads(line) for line in seen.splitlines() if line.startswith("{"))
    parts = {one["name"]: one["status"] for one in rows}
    assert {name: status for name, status in parts.items() if "desk" in name} == {
        "site desk": "ok",
        "login desk agent": "ok",
        "login desk boss": "ok",
    }
    webgym(folder, "tasks", "expand", "first.yaml", "-o", "first.jsonl")
    tasks = read_tasks(folder / "first.jsonl")
    kinds = {one["check"] + one["start_url"]: one for one in tasks}  # one task of each template is enough
    (folder / "some.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kinds.values()))
    assert "3 tasks tried" in webgym(folder, "tasks", "check", "some.jsonl", *settings, "--try")


RECORDED = ("add-box-five", "delete-monday-two", "email-black-january", "dismiss-black-april")
"""A task of each kind."""


async def do_as_a_person(person, task: dict) -> None:
    """Search, open the entry, change it and save, by pointer and keys."""
    kind = task["todo"]
    if kind != "add":
        await person.click("Search")
        await person.type(task["name"] if kind != "delete" else task["gone"])
        await person.press("Enter")
    await person.click("Add group" if kind == "add" else task.get("name") or task["gone"], "link")
    if kind == "delete":
        await person.click("Delete", "link")
        await person.click("Yes, I’m sure", "button")
        return
    await person.click(task["label"])
    if kind == "tick":
        await person.click("Save", "button")
        return
    await person.press("Control+a")
    await person.type(task.get("value") or task["made"])
    await person.press("Enter")


async def test_what_a_person_records_on_an_application_of_others_replays(site, chromium, monkeypatch):
    """A smaller version of the 40 recordings that docs/your-site.md tells of: at least 95 % of them are kept."""
    folder, settings = site
    monkeypatch.chdir(folder)
    webgym(folder, "tasks", "expand", "templates.yaml", "-o", "tasks.jsonl")
    tasks = [one for one in read_tasks(folder / "tasks.jsonl") if one["id"] in RECORDED]
    (folder / "some.jsonl").write_text("".join(json.dumps(one) + "\n" for one in tasks))
    given = [value for value in settings if "=" in value]
    with fresh_registries():
        run = RunDir(folder / "run")
        async with record_by(run, chromium, monkeypatch, "some.jsonl", *given, files=["site.yaml"]) as (person, job):
            for _ in tasks:
                live = await person.begin()
                await do_as_a_person(person, live.task.extra)
                await person.button("Done")
            assert await job == len(tasks) == len(RECORDED)
    assert [one.outcome.reward for one in scan_stored(run, Split.TRAIN, 0)] == [1.0] * len(tasks)


@contextmanager
def fresh_registries() -> Iterator[None]:
    """What the plug-in of the block registers is gone after it."""
    before = [(one.registered, dict(one.registered)) for one in (CHECKS, SETUPS, EXPERTS)]
    yield
    for registered, items in before:
        registered.clear()
        registered.update(items)


def test_the_user_s_own_files_are_short():
    own = shipped_root() / "own-site"
    lines = (own / "desk.py").read_text().splitlines()
    assert next(at for at, line in enumerate(lines) if line.startswith("@expert")) <= 60
    assert len((own / "site.yaml").read_text().splitlines()) <= 20
