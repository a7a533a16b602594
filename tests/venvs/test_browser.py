"""Which ways to a browser are tried, in which order."""

from pathlib import Path

import pytest

from webgym_cli.cli import output
from webgym_cli.errors import VenvError
from webgym_cli.venvs import browser
from webgym_cli.venvs.browser import execute_browser, plan_browser


@pytest.fixture(autouse=True)
def debian_as_root(tmp_path, monkeypatch):
    monkeypatch.setattr(browser, "_root_prefix", lambda: ())
    monkeypatch.setattr(browser.shutil, "which", lambda name: f"/usr/bin/{name}")


class Machine:
    """Has no browser until the command that holds `needs` has run."""

    def __init__(self, tmp_path, needs):
        self.path, self.needs, self.commands = tmp_path / "chromium", needs, []

    def find(self):
        if any(self.needs in command for command in self.commands):
            return self.path
        raise VenvError("no Chromium was found")

    def run(self, command, log):
        self.commands.append(list(command))
        return 0 if self.needs in command or "update" in command else 1


def test_a_browser_that_is_there_is_enough(tmp_path):
    there, events = tmp_path / "chromium", []
    plan = plan_browser(lambda: there)
    assert plan.to_json()["state"] == "ready"
    assert execute_browser(plan, events.append, lambda *_: 1, lambda: there, lambda _: False) == there
    assert "already there" in events[0]


@pytest.mark.parametrize(("needs", "commands"), [("playwright", 1), ("chromium-headless-shell", 1), ("chromium", 5)])
def test_the_next_way_is_tried_when_one_fails(tmp_path, needs, commands):
    machine = Machine(tmp_path, needs)
    plan = plan_browser(machine.find)
    assert execute_browser(plan, lambda line: None, machine.run, machine.find, lambda commands: True) == machine.path
    assert len(machine.commands) == commands


def test_when_all_fail_the_command_for_a_person_is_told(tmp_path):
    machine = Machine(tmp_path, "nothing")
    with pytest.raises(VenvError) as caught:
        execute_browser(plan_browser(machine.find), lambda line: None, machine.run, machine.find, lambda commands: True)
    assert "apt-get install -y chromium-headless-shell fonts-liberation" in caught.value.hint


def test_without_root_no_system_package_is_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(browser, "_root_prefix", lambda: None)
    plan = plan_browser(Machine(tmp_path, "nothing").find)
    attempts = [*plan.attempts, *plan.system_attempts]
    assert [attempt[0][-2:] for attempt in attempts] == [("install", "chromium-headless-shell")]


def test_nothing_runs_as_root_without_consent(tmp_path):
    machine, events = Machine(tmp_path, "chromium"), []
    with pytest.raises(VenvError) as caught:
        execute_browser(plan_browser(machine.find), lambda line: None, machine.run, machine.find, events.append)
    assert not any("apt-get" in command for command in machine.commands)
    assert "--system-packages" in caught.value.hint
    assert [command[-1] for command in events[0]] == ["update", "fonts-liberation"]


@pytest.mark.parametrize(("stdin", "stderr", "is_asked"), [(1, 1, 1), (0, 1, 0), (1, 0, 0)])
def test_consent_is_asked_for_on_a_terminal_only(monkeypatch, stdin, stderr, is_asked):
    questions = []
    monkeypatch.setattr(output.sys.stdin, "isatty", lambda: stdin, raising=False)
    monkeypatch.setattr(output.sys.stderr, "isatty", lambda: stderr, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question, err: not questions.append(question))
    assert output.Output().confirm("as root?") == is_asked
    assert len(questions) == is_asked


def test_the_targets_of_make_ask_nothing():
    lines = (Path(__file__).parents[2] / "Makefile").read_text().splitlines()
    setups = [line for line in lines if "/webgym setup" in line and "--role train -s" not in line]
    assert setups and all("--system-packages" in line for line in setups)
