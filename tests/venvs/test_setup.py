"""The set-up with a scripted runner: what is planned, done, repeated and told."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.venvs.test_doctor import install
from webgym_cli.config.load import load
from webgym_cli.config.shipped import requirements_files
from webgym_cli.errors import JobError, VenvError
from webgym_cli.venvs import setup as room
from webgym_cli.venvs.locate import role_environment, role_environments
from webgym_cli.venvs.setup import execute_setup, plan_setup, reason


class Runner:
    """Stands in for the processes: makes a folder like a virtual environment, and fails where told to."""

    def __init__(self, fail_at="", says=""):
        self.fail_at, self.says, self.commands = fail_at, says, []

    def __call__(self, command, log: Path):
        self.commands.append(list(command))
        with log.open("a") as file:
            file.write(f"{self.says}\n")
        if "venv" in command:
            install(Path(command[-1]), torch="2.13.0")
        return 1 if self.fail_at and self.fail_at in command else 0


def plan(*roles, device="cpu", **named):
    return plan_setup(load((), [f"venvs.{key}={value}" for key, value in named.items()]), roles, device)


def test_the_plan_is_plain_data_and_changes_nothing(home):
    (role,) = json.loads(json.dumps([part.to_json() for part in plan("train")]))
    assert (role["role"], role["device"], role["state"]) == ("train", "cpu", "make")
    make, install, check = role["commands"]
    assert make[-3:] == ["venv", sys.executable, role["path"]]
    assert install[-2:] == ["-r", str(requirements_files("train", "cpu")[-1])]
    assert "llamafactory" in check[-1]
    assert not home.exists()


@pytest.mark.parametrize(
    ("python", "base", "suffix"), [("/bin/python3.11", "/bin/python3.11", ".lock"), ("", sys.executable, ".txt")]
)
def test_a_python_without_lock_file_takes_another_that_has_one_where_there_is_one(monkeypatch, python, base, suffix):
    # not `sys.version_info` itself, by which other packages choose what they import
    monkeypatch.setattr("webgym_cli.config.shipped.sys", SimpleNamespace(platform="linux", version_info=(3, 14)))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    searches = []
    monkeypatch.setattr(room.installer_script, "find_interpreter", lambda versions: searches.append(versions) or python)
    (role,) = plan("train")
    assert role.commands[0][-2] == base
    assert role.environment.requirements.suffix == Path(role.commands[1][-1]).suffix == suffix
    execute_setup([role], lambda line: None, Runner())
    # what is set up stays, whatever a later command finds
    assert plan("train")[0].state == "ready"
    assert role_environment("train", "cpu") == role.environment
    assert searches == [((3, 11),)]
    for environment in role_environments("train", "cpu"):
        environment.path.mkdir(parents=True, exist_ok=True)
        environment.python.parent.mkdir(parents=True, exist_ok=True)
        environment.python.touch()
        environment.marker.touch()
    assert role_environment("train", "cpu").requirements.suffix == ".lock"
    events = []
    execute_setup(plan("train"), events.append, Runner())
    assert [line for line in events if "another webgym version" in line] == [], "both are of this version"


def test_it_is_made_once_and_a_plan_that_was_overtaken_does_nothing():
    runner, events, late = Runner(), [], plan("train")
    execute_setup(plan("train"), events.append, runner)
    environment = plan("train")[0].environment
    assert environment.complete
    assert len(runner.commands) == 3
    assert json.loads(environment.marker.read_text())["packages"] == {"torch": "2.13.0"}
    assert list(environment.path.glob("lib/*/site-packages/webgym_cpu_hook.pth"))
    for again in (late, plan("train")):
        execute_setup(again, events.append, runner)
        assert len(runner.commands) == 3
    assert "already there" in events[-1]


def test_environments_of_other_versions_are_named_and_kept(home):
    other, foreign = home / "envs" / "train-cpu-000000000000", home / "envs" / "serve-cpu-000000000000"
    for folder in (other, foreign):
        folder.mkdir(parents=True)
    for _ in range(2):
        events = []
        execute_setup(plan("train"), events.append, Runner())
        assert [line for line in events if "another webgym version" in line] == [events[-1]]
        assert str(other) in events[-1]
    assert other.is_dir() and foreign.is_dir()


def test_cuda_gets_no_cpu_fixes():
    execute_setup(plan("serve", device="cuda"), lambda line: None, Runner())
    environment = plan("serve", device="cuda")[0].environment
    assert environment.complete
    assert not list(environment.path.glob("lib/*/site-packages/webgym_cpu_hook*"))


def test_an_interrupted_set_up_is_made_again_and_nothing_else_is_touched(home):
    def interrupted(command, log):
        if "install" in command:
            raise KeyboardInterrupt
        return Runner()(command, log)

    other = home / "envs" / "train-cpu-000000000000"
    other.mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt):
        execute_setup(plan("train"), lambda line: None, interrupted)
    environment = plan("train")[0].environment
    leftover = environment.path / "leftover"
    leftover.write_text("")
    assert not environment.complete
    execute_setup(plan("train"), lambda line: None, Runner())
    assert plan("train")[0].environment.complete
    assert not leftover.exists()
    assert other.is_dir()


@pytest.mark.parametrize("step", ["venv", "install", "-c"])
def test_a_failed_step_names_the_log_and_the_reason(step):
    runner = Runner(fail_at=step, says="WARNING: never mind\nERROR: No matching distribution found\nWARNING: retry")
    with pytest.raises(JobError) as caught:
        execute_setup(plan("train"), lambda line: None, runner)
    role = plan("train")[0]
    assert "No matching distribution found" in str(caught.value)
    assert str(role.log) in caught.value.hint
    assert caught.value.exit_code == 4
    assert not role.environment.complete


UV = "error: Failed\n  cause: Because torch"


@pytest.mark.parametrize(
    ("says", "is_index"),
    [
        (
            "error: No solution found when resolving dependencies\n"
            "  cause: Because there is no version of torch==2.13.0+cpu and you require torch==2.13.0+cpu, so",
            True,
        ),
        (f"{UV} was not found in the package registry and you require torch==2.13.0+cpu, we can conclude", True),
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", True),
        ("error: Failed\n  cause: Failed to extract torch==2.13.0+cpu\n  cause: No space left on device", False),
        ("ERROR: Could not install torch==2.13.0+cpu: No space left on device", False),
    ],
)
def test_an_index_without_the_cpu_build_of_torch_is_told_from_other_failures(says, is_index):
    with pytest.raises(JobError) as caught:
        execute_setup(plan("train"), lambda line: None, Runner(fail_at="install", says=says))
    assert ("PIP_EXTRA_INDEX_URL" in caught.value.hint) is is_index and "torch==2.13.0+cpu" in str(caught.value)


def test_the_reason_is_looked_for_in_the_last_step_and_may_be_the_network(tmp_path):
    log = tmp_path / "log"
    log.write_text("ERROR: pip's resolver complains\n")
    start = log.stat().st_size
    log.write_text(log.read_text() + "Traceback\nImportError: libfoo\n")
    assert reason(log, start) == "ImportError: libfoo"
    assert reason(tmp_path / "none") == "it could not be started"
    log.write_text("WARNING: Retrying: NewConnectionError('Network is unreachable')\nERROR: No matching distribution\n")
    assert reason(log).startswith("no network")
    causes = ("Failed to fetch: http://a/torch/", "error sending request", "Connection refused (os error 111)")
    log.write_text("error: Request failed\n" + "".join(f"  cause: {cause}\n" for cause in causes))
    assert reason(log) == f"{causes[0]}: {causes[-1]}"
    log.write_text("error: No solution found\n  cause: Because a\n")
    assert reason(log) == "Because a"


def test_an_environment_of_ones_own_is_left_alone(tmp_path):
    runner, events = Runner(), []
    execute_setup(plan("train", train=str(tmp_path)), events.append, runner)
    assert runner.commands == []
    assert "of your own" in events[0]


def test_without_ensurepip_the_package_is_named(monkeypatch):
    monkeypatch.setattr(room, "find_spec", lambda name: None)
    with pytest.raises(VenvError) as caught:
        execute_setup(plan("train"), lambda line: None, Runner())
    assert "python3-venv" in caught.value.hint
