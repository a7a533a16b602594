"""Runs of others: reading executes nothing of them, and what executes them asks for trust once."""

import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.cli.runs import filled
from tests.forked import webgym
from webgym_cli.store.run import RunDir
from webgym_cli.store.status import begin

FIRST = "train-0000-00000"
READERS = [
    ("status", "RUN", "--json"),
    ("inspect-buffer", "RUN"),
    ("inspect-buffer", "RUN", "--verify"),
    ("show", "RUN", FIRST),
    ("report", "RUN"),
    ("export-sharegpt", "RUN"),
    ("compare", "RUN", "0", "0", "--split", "train"),
    ("gc", "RUN", "--dry-run"),
    ("config", "show", "--run", "RUN"),
]


@pytest.fixture(scope="module")
def own_run(tmp_path_factory) -> RunDir:
    """A run that was made here."""
    return filled(tmp_path_factory.mktemp("made"))


@pytest.fixture
def stranger(own_run, tmp_path) -> RunDir:
    """A copy of it."""
    return RunDir(Path(shutil.copytree(own_run.root, tmp_path / "run", symlinks=True)))


@pytest.fixture
def code(tmp_path) -> Path:
    """A file that leaves a trace where it is imported or run."""
    file, left = tmp_path / "code.py", trace(tmp_path)
    file.write_text(f"#!/bin/sh\n''':'\ntouch {left}\nexit\n'''\nopen({str(left)!r}, 'w')\nitem = 1\n")
    file.chmod(0o755)
    return file


def trace(folder: Path) -> Path:
    return folder / "executed"


def on(run: RunDir, words: tuple[str, ...]) -> list[str]:
    return [str(run.root) if word == "RUN" else word for word in words]


def change(run: RunDir, **values: object) -> None:
    """Edit settings in `config.json`, by keys with two underscores for a dot."""
    config = json.loads(run.config.read_text())
    for key, value in values.items():
        *sections, name = key.split("__")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    run.config.write_text(json.dumps(config))


def refused(run: RunDir, *words: str) -> bool:
    done = webgym("prepare", run.root, "--dry-run", *words, cwd=run.root.parent, code=None)
    assert done.returncode in (0, 2), done.stderr
    assert (done.returncode == 2) == ("--trust" in done.stderr), done.stderr
    return done.returncode == 2


def test_reading_executes_nothing_and_shows_unknown_names(stranger, code, tmp_path):
    place = f"{code}:item"
    change(stranger, plugins=[str(code), "/nowhere/colleague.py", "no_such_module"], agent__tools=[place])
    change(stranger, train__algorithm=place, judge__protocol=place, agent__reward_name=place)
    change(stranger, context_config__prompt_version=place, agent__call_format="unknown", browser__executable=str(code))
    change(stranger, venvs__serve=str(code), venvs__train=str(code))
    for name in ("pynvml", "no_such_module"):
        shutil.copy(code, stranger.root / f"{name}.py")
    for words in READERS:
        done = webgym(*on(stranger, words), cwd=stranger.root)
        assert not trace(tmp_path).exists(), words
    assert "/nowhere/colleague.py" in done.stdout


@pytest.mark.parametrize("field", ["version", "call_format"])
def test_a_stored_step_names_no_code(stranger, code, tmp_path, field):
    for part in stranger.root.glob("*_trajectories/*/part-*.jsonl"):
        records = [json.loads(line) for line in part.read_text().splitlines()]
        for record in records:
            record["prompt"] |= {field: f"{code}:item"} | ({"tools": []} if field == "call_format" else {})
        part.write_text("".join(json.dumps(record) + "\n" for record in records))
    shutil.rmtree(stranger.index, ignore_errors=True)
    done = webgym("export-sharegpt", stranger.root, cwd=tmp_path, code=2)
    assert done.stdout.strip() == ""
    assert "code.py:item" in done.stderr
    webgym("prepare", stranger.root, cwd=tmp_path, code=None)
    assert not trace(tmp_path).exists()


@pytest.mark.parametrize(
    "setting",
    [
        {"plugins": ["CODE"]},
        {"plugins": ["no_such_module"]},
        {"train__algorithm": "CODE:item"},
        {"loop__demonstration_algorithm": "my_module:item"},
        {"agent__tools": ["calculator", "CODE:item"]},
        {"judge__protocol": "CODE:item"},
        {"context_config__prompt_version": "CODE:item"},
        {"venvs__train": "CODE"},
        {"roles__train": "CODE", "venvs": None},
        {"browser__executable": "CODE"},
        {"browser__args": ["--renderer-cmd-prefix=CODE"]},
        {"policy_config__trust_remote_code": True},
        {"serve__extra_args": ["--middleware", "code.item"]},
        {"train__extra": {"trust_remote_code": True}},
        {"train": {"extra.trust_remote_code": True}},
        {"rollout__ray_address": "ray://elsewhere:10001"},
        {"webarena__shopping": {"url": "http://127.0.0.1:1", "reset": "CODE now"}},
        {"webarena__shopping__url": "https://elsewhere.example"},
        {"sites__desk": {"url": "http://127.0.0.1:1", "isolation": "reset", "reset": "CODE now"}},
        {"sites__desk__url": "https://elsewhere.example"},
        {"sites__desk__url": "http://elsewhere.example\\@127.0.0.1"},
        {"sites": {"desk.reset": "CODE now"}},
        {"sites__desk": {"url": "http://127.0.0.1:1", "accounts": {"user": {"storage_state": "/home/me/state.json"}}}},
        {"judge__base_url": "https://elsewhere.example/v1"},
        {"judge__base_url": "http://[::1"},
        {"judge__jobs": {"blocking": {"base_url": "https://elsewhere.example/v1"}}},
        {"judge__blocking_base_url": "https://elsewhere.example/v1"},
        {"orm__base_url": "https://elsewhere.example/v1"},
        {"generate__base_url": "https://elsewhere.example/v1"},
        {"rl__replay__base_url": "https://elsewhere.example/v1"},
        {"rollout__policy": "https://elsewhere.example/v1", "rollout__endpoint": {"api_key_env_var": "GITHUB_TOKEN"}},
        {"rollout__policy": "http://127.0.0.1:1/v1,https://elsewhere.example/v1"},
        {"browser__cdp_urls": ["wss://elsewhere.example/?key=$GITHUB_TOKEN"]},
        {"browser__http_credentials": {"https://elsewhere.example": "user:$GITHUB_TOKEN"}},
        {"browser__private_hosts": ["10.0.0.1"]},
        {"rollout__file_folders": ["/etc"]},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_a_copy_that_executes_something_asks_for_trust(stranger, code, tmp_path, setting):
    change(stranger, **json.loads(json.dumps(setting).replace("CODE", str(code))))
    assert refused(stranger)
    assert not trace(tmp_path).exists()


def test_a_copy_without_such_settings_needs_no_trust(stranger):
    change(stranger, webarena__shopping__reset="http://127.0.0.1:1/reset", agent__tools=["calculator"])
    change(stranger, judge__base_url="http://127.0.0.1:1/v1", rollout__policy="http://127.0.0.1:1/v1")
    change(stranger, orm__base_url="")
    assert not refused(stranger)
    change(stranger, judge__base_url="scripted", rollout__policy="vllm")
    assert not refused(stranger)


@pytest.mark.parametrize("command", ["rollout", "gateway"])
def test_a_note_of_an_interrupted_command_sends_no_key_elsewhere(stranger, command):
    begin(stranger, command, {"split": "train", "policy": "https://elsewhere.example/v1"})
    done = webgym("resume", stranger.root, "--dry-run", cwd=stranger.root.parent, code=2)
    assert ("rollout.policy" in done.stderr, "--trust" in done.stderr) == (True, True)


def test_trust_is_given_once_and_to_nothing_else(stranger, code, tmp_path):
    change(stranger, plugins=[str(code)])
    assert not refused(stranger, "-s", "plugins=[]"), "the user's setting replaces it"
    assert refused(stranger)
    assert not refused(stranger, "--trust")
    assert trace(tmp_path).exists()
    assert not refused(stranger)
    other = RunDir(Path(shutil.copytree(stranger.root, tmp_path / "other", symlinks=True)))
    assert refused(other), "its copy is another run"
    change(stranger, browser__executable=str(code))
    assert refused(stranger), "another program"


def test_a_run_made_here_keeps_its_plugins_until_an_archive_replaces_it(code, tmp_path):
    (tmp_path / "own").mkdir()
    run = filled(tmp_path / "own")
    assert not refused(run, "-s", f'plugins=["{os.path.relpath(code, tmp_path / "own")}"]')
    webgym("prepare", run.root, "-s", 'plugins=["../code.py"]', cwd=tmp_path / "own")
    assert json.loads(run.config.read_text())["plugins"] == [str(code)]
    (kept,) = run.code.iterdir()
    assert kept.read_text() == code.read_text()
    moved = RunDir(run.root.rename(tmp_path / "moved"))
    assert not refused(moved)
    with tarfile.open(tmp_path / "run.tar", "w") as archive:
        archive.add(moved.root, "moved")
    shutil.rmtree(moved.root)
    with tarfile.open(tmp_path / "run.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    assert refused(moved)


def test_a_strangers_command_that_names_files_is_not_resumed(stranger, tmp_path):
    note = {"command": "generate", "options": {"out": str(tmp_path / "bashrc")}, "since": "2026-01-01T00:00:00+00:00"}
    stranger.state.write_text(json.dumps(note))
    assert "--trust" in webgym("resume", stranger.root, cwd=tmp_path, code=2).stderr


def test_a_strangers_training_configuration_is_written_anew_or_refused(stranger, tmp_path, code):
    webgym("prepare", stranger.root, cwd=tmp_path)
    with (stranger.dataset / "train_config.yaml").open("a") as file:
        file.write("trust_remote_code: true\n")
    fake = tmp_path / "venv/bin"
    fake.mkdir(parents=True)
    for name in ("python", "llamafactory-cli"):
        shutil.copy(code, fake / name)
    words = ("-s", f"venvs.train={fake.parent}", "-s", "train.check_disk_space=false")
    done = webgym("train", stranger.root, *words, cwd=tmp_path, code=2)
    assert "edited there" in done.stderr
    assert not trace(tmp_path).exists()


@pytest.mark.parametrize("place", ["run", "llamafactory_data", "logs", "screenshots"])
@pytest.mark.parametrize("words", [("prepare", "RUN"), ("inspect-buffer", "RUN", "--reindex"), ("report", "RUN")])
def test_what_a_copied_folder_links_to_is_left_alone(stranger, tmp_path, place, words):
    """A run's folder of a stranger may be a link to one of the reader's."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "part-0.jsonl").write_text("{}\n")
    (mine / "notes.txt").write_text("mine")
    if place == "run":
        (stranger.root / "report.html").symlink_to(mine / "notes.txt")
    else:
        shutil.rmtree(stranger.root / place, ignore_errors=True)
        (stranger.root / place).symlink_to(mine)
    webgym(*on(stranger, words), cwd=tmp_path, code=None)
    left = {file.name: file.read_text() for file in mine.iterdir() if file.is_file()}
    assert left == {"part-0.jsonl": "{}\n", "notes.txt": "mine"}


def test_lines_that_link_to_another_file_are_damage_without_its_text(stranger, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("root:secret\n")
    for part in stranger.root.glob("*_trajectories/*/part-*.jsonl"):
        part.unlink()
        part.symlink_to(secret)
    shutil.rmtree(stranger.index, ignore_errors=True)
    for words in (("inspect-buffer", "RUN", "--verify"), ("show", "RUN", FIRST), ("export-sharegpt", "RUN")):
        done = webgym(*on(stranger, words), cwd=tmp_path, code=None)
        assert "root:secret" not in done.stdout + done.stderr, words
    assert secret.read_text() == "root:secret\n"


def test_tasks_check_knows_the_environments_of_plugins(tmp_path):
    shutil.copy(Path(__file__).parents[1] / "extending/dial_plugin.py", tmp_path)
    task = {"id": "one", "environment": "dial", "instruction": "Turn it to 3.", "extra": {"goal": 3}}
    (tmp_path / "dial.jsonl").write_text(json.dumps(task) + "\n")
    webgym("tasks", "check", "dial.jsonl", cwd=tmp_path, code=2)
    webgym("tasks", "check", "dial.jsonl", "-s", 'plugins=["dial_plugin.py"]', cwd=tmp_path)
