"""stdout is for programs: JSON Lines, ids or plain lines, and nothing else, whatever the terminal is said to be."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.runs import filled
from tests.cli.terminal import rest, terminal
from tests.forked import begin, webgym
from tests.imports.foreign import webrl_episode
from webgym_cli.cli.main import _require_home
from webgym_cli.cli.output import Output
from webgym_cli.util.files import user_folder

ESCAPE = "\x1b"
JSON = {
    "status": ["status", "run", "--json"],
    "inspect-buffer": ["inspect-buffer", "run", "--json"],
    "verify": ["inspect-buffer", "run", "--verify", "--json"],
    "sql": ["inspect-buffer", "run", "--sql", "select id, reward from trajectories", "--json"],
    "show": ["show", "run", "train-0000-00000", "train-0000-00001", "--json"],
    "versions": ["compare", "run", "0", "0", "--split", "train", "--json"],
    "compare": ["compare", "run", "other", "--json"],
    "report": ["report", "run", "--json"],
    "gc": ["gc", "run", "--json"],
    "config show": ["config", "show", "--json"],
    "doctor": ["doctor", "-s", "venvs.serve=python", "-s", "venvs.train=python", "--json"],
    "prepare": ["prepare", "run"],
    "judge": ["judge", "run", "--all", "-s", "judge.base_url=scripted"],
    "import": ["import", "webrl", "results", "new"],
    "rollout": ["rollout", "run", "--policy", "oracle", "--episodes", "5"],
    "tasks sample": ["tasks", "sample", "sites:all", "-n", "3"],
    "export": ["export-sharegpt", "run", "--format", "jsonl"],
}
PLAIN = {
    "status": ["status", "run"],
    "inspect-buffer": ["inspect-buffer", "run"],
    "ids": ["inspect-buffer", "run", "-q"],
    "show": ["show", "run", "train-0000-00000"],
    "compare": ["compare", "run", "other"],
    "gc": ["gc", "run", "-n"],
    "config show": ["config", "show"],
    "help": ["rollout", "--help"],
}
OTHERS = {
    "version": ["--version"],
    "page": ["--help"],
    "config schema": ["config", "schema"],
    "tasks check": ["tasks", "check", "tasks.jsonl"],
    "tools list": ["tools", "list"],
    "completion": [],
    **{name: [name, "run", "--dry-run"] for name in ("rollout", "loop", "serve", "track", "resume")},
    "setup": ["setup", "--dry-run"],
    "init-model": ["init-model", "tiny", "new", "--dry-run"],
}
GROUPS = {"json": JSON, "plain": PLAIN, "others": OTHERS}
# By name: `--show-completion` takes the shell from the processes above, of which a service has none.
ENVIRONMENTS = {"completion": {"_WEBGYM_COMPLETE": "source_bash"}}
TERMINALS = ({"TERM": "dumb"}, {"TERM": "xterm-256color"})


@pytest.fixture
def place(tmp_path):
    shutil.copytree(filled(tmp_path).root, tmp_path / "other")
    webrl_episode(tmp_path / "results", "12", ['do(action="Click", element="3")'])
    (tmp_path / "tasks.jsonl").write_text('{"id": "ä", "start_url": "click-test.html"}\n')
    return tmp_path


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in GROUPS for name in GROUPS[group]])
def test_whatever_the_streams_are_nothing_ends_in_a_traceback_and_stdout_is_for_programs(place, group, name):
    command, right = GROUPS[group][name], (0, 1) if name == "doctor" else (0,)
    more = {**TERMINALS[len(name) % 2], "COLUMNS": "80" if name == "help" else "40", **ENVIRONMENTS.get(name, {})}
    if group != "plain":  # of the same commands as `json`
        full = webgym(*command, cwd=place, code=None, streams={1: "/dev/full"}, **more)
        assert "Traceback" not in full.stderr and ESCAPE not in full.stderr
        if name != "resume":  # it has nothing to say on stdout
            assert full.returncode == 1
            assert "No space left on device" in full.stderr.splitlines()[-2]
            assert full.stderr.splitlines()[-1].startswith("  next: ")
        assert webgym(*command, cwd=place, code=None, streams={1: "-", 2: "-"}, **more).returncode in right
    result = webgym(*command, cwd=place, code=None, streams={2: "/dev/full"}, PYTHONIOENCODING="latin-1", **more)
    assert result.returncode in right
    assert bool(result.stdout) is (name != "resume")
    if group == "json":
        assert all(isinstance(json.loads(line), dict) for line in result.stdout.splitlines())
    if group == "plain":
        assert not re.search(r"[\x1b\u2500-\u257f]", result.stdout)


@pytest.mark.parametrize("name", ["prepare", "judge"])
def test_where_stdout_and_stderr_are_one_file_each_event_stands_there_once_in_words(place, name):
    log = str(place / "log")
    webgym(*JSON[name], cwd=place, streams={1: log, 2: log})
    lines = (place / "log").read_text().splitlines()
    assert lines and len(set(lines)) == len(lines)
    assert not [line for line in lines if line.startswith("{")]


def test_tables_in_a_pipe_are_told_apart(place):
    lines = webgym(*PLAIN["inspect-buffer"], cwd=place).stdout.splitlines()
    assert sum(line.startswith("# ") for line in lines) > 2


@pytest.mark.parametrize("more", [(), ("-q",), ("--json",)])
def test_a_choice_that_matches_nothing_is_told(place, more):
    result = webgym("inspect-buffer", "run", "--task", "nope", *more, cwd=place)
    assert ("no trajectory matches" in result.stderr) is ("-q" not in more)


def test_a_terminal_that_is_too_narrow_keeps_numbers_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    row = ("miniwob", "123456789", "0.123-0.456", "+0.301 (+0.119 to +0.445)", "1234567")
    Output().summary_table("held-out", ("name", "episodes", "interval", "change", "steps"), [row])
    shown = capsys.readouterr().err
    assert all(word in shown for cell in row for word in cell.split())


def test_json_keeps_its_value_where_the_stream_is_not_utf8(place):
    """As JSON escapes them: neither the letters that a terminal obeys nor those that latin-1 lacks are lost."""
    value = "\x9b31m ≥ 😀"
    question = ["inspect-buffer", "run", "--sql", f"select '{value}' as a", "--json"]
    for coding in ("utf-8", "latin-1", "ascii"):
        result = webgym(*question, cwd=place, PYTHONIOENCODING=coding)
        assert "\x9b" not in result.stdout
        assert json.loads(result.stdout) == {"a": value}, result.stderr


def test_a_moment_with_a_time_zone_needs_no_other_package(place):
    question = "select now() as a, 1 as a, [now()] as b, {'at': now()} as c -- with a comment"
    row = json.loads(webgym("inspect-buffer", "run", "--sql", question, "--json", cwd=place).stdout)
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:", row["c"]["at"])
    assert row["b"] == [row["c"]["at"]]


def test_what_is_longer_than_the_terminal_stays_whole(tmp_path):
    result = webgym("config", "show", "-s", f"policy_config.base_model={'x' * 200}", cwd=tmp_path, COLUMNS="40")
    assert f"policy_config.base_model\t{'x' * 200}\t-s policy_config.base_model\t" in result.stdout


def test_a_dumb_terminal_gets_no_bars_and_no_colours(place):
    with terminal() as (ours, theirs):
        child = begin(*JSON["judge"], cwd=place, streams={1: theirs, 2: theirs}, TERM="dumb")
        os.close(theirs)
        shown = rest(ours)
    child.join(60)
    assert child.exitcode == 0
    assert "judged" in shown and ESCAPE not in shown


def test_a_run_that_is_none_names_those_nearby(place):
    for literal in ("one", "two"):
        (place / "runs" / literal).mkdir(parents=True)
        (place / "runs" / literal / "run.json").write_text("{}")
    first = webgym("status", "zzzzzzzz", cwd=place, code=3).stderr.splitlines()[0]
    assert first == "webgym: zzzzzzzz: there is no run; there are other, run, runs/one, runs/two"


def test_a_user_without_a_home_folder_gets_none_that_is_called_tilde(monkeypatch):
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # of a container that runs as any user id
    before = os.environ["HOME"]
    _require_home()
    assert os.environ["HOME"] == before
    monkeypatch.delenv("HOME")
    _require_home()
    assert user_folder("NO_SUCH_VARIABLE", ".local/share") == Path("/nonexistent/.local/share")
    assert Path("~/model").expanduser() == Path("/nonexistent/model")
