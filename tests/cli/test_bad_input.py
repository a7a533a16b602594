"""Wrong input: one clear line, the published exit code, and nothing written."""

import errno
import os
import shlex
import socket
import subprocess
from itertools import product
from pathlib import Path

import pytest

from tests.cli.runs import WEBGYM, filled
from tests.forked import read_refusal, refused, webgym
from webgym_cli.cli import main
from webgym_cli.cli.output import fail
from webgym_cli.errors import StoreError
from webgym_cli.records.task import Split
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import write_json

ORACLE = ("-c", "demo", "--policy", "oracle", "--episodes", "4")
GOOD = '{"id": "t", "start_url": "click-test.html"}\n'


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("lines", "reply"),
    [
        (None, "tasks.jsonl: the task file can't be read: No such file or directory"),
        ("", "tasks.jsonl: no task in the file"),
        (GOOD + '{"id": "t2", "start', "tasks.jsonl:2: not JSON"),
        ('{"task_nam": "Find it.", "website": "https://a.example"}', "did you mean 'task_name' by 'task_nam'?"),
        ('{"id": "t", "start_ur": "click-test.html"}', "did you mean 'start_url' by 'start_ur'?"),
    ],
)
def test_a_task_file(tmp_path, run, lines, reply):
    file = tmp_path / "tasks.jsonl"
    if lines is not None:
        file.write_text(lines)
    message, _ = refused("rollout", run, *ORACLE, "-s", f"tasks.train={file}", cwd=tmp_path)
    assert reply in message
    assert not run.exists()


@pytest.mark.parametrize(
    ("arguments", "reply"),
    [
        (("-s", "rollout.epsiodes=4"), "unknown setting 'rollout.epsiodes'; did you mean 'rollout.episodes'?"),
        (("-s", "rollout.episodes=1000000000"), "rollout.episodes: "),
        (("-s", f"rollout.episodes={'9' * 5000}"), "rollout.episodes: "),
        (("-s", f"agent.tools=[{'9' * 5000}]"), "agent.tools: "),
        (("-s", "agent.num_chains=1000000"), "agent.num_chains: "),
        (("--policy", "oracle", "--episodes", "99999999999"), "1000000"),
        (("-s", "rollout.episodes"), "-s takes section.key=value"),
        (("-c", "nowhere.yaml"), "nowhere.yaml"),
        (("--policy", "nonsense"), "'nonsense' is neither vllm, oracle nor a base URL"),
        (("--policy", "oracle", "-s", "tasks.train=miniwob:bisect-angle"), "bisect-angle"),
        ((*ORACLE, "-s", "browser.executable=/no/such/chromium"), "/no/such/chromium"),
        (("-s", "algorithm_config.model_output_name=../notes.txt"), "algorithm_config.model_output_name: "),
        (("-s", "algorithm_config.model_output_name=.."), "algorithm_config.model_output_name: "),
    ],
)
def test_settings_and_options(tmp_path, run, arguments, reply):
    message, _ = refused("rollout", run, *arguments, cwd=tmp_path)
    assert reply in message
    assert not (run / "train_trajectories").exists()


BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("bomb.yaml", BOMB, "bomb.yaml"),
        ("bomb.yaml", BOMB.replace("[", "{k: [").replace("]", "]}"), "bomb.yaml"),
        ("open.yaml", "{rollout: " + "[1, " * 900, "open.yaml"),
        ("self.yaml", "rollout: &a {episodes: *a}", "self.yaml:1: not YAML: a value is within itself"),
        ("twice.yaml", "sites:\n  a: {url: 'http://a'}\n  a: {}", "twice.yaml:3: not YAML: a is given twice"),
        ("deep.yaml", f"rollout: {'[' * 3000}{']' * 3000}", "deep.yaml: nested too deeply"),
        ("deep.json", f'{{"rollout": {"[" * 100_000}{"]" * 100_000}}}', "deep.json: nested too deeply"),
        ("half.json", '{"rollout":\n', "half.json: can't be read: Expecting value: line 2"),
        ("digits.yaml", f"seed: {'9' * 5000}", "digits.yaml: can't be read"),
        ("latin.yaml", "rollout: {policy: \udce9}", "latin.yaml: can't be read"),
    ],
)
def test_settings_without_a_floor(tmp_path, name, text, words):
    (tmp_path / name).write_text(text, errors="surrogateescape")
    message, _ = refused("config", "show", "-c", name, cwd=tmp_path)
    assert message.startswith(words)


@pytest.mark.parametrize(
    ("arguments", "variables", "wanted"),
    [
        (("rollout", "run", "-s", "tasks.train=miniwob:clik-test"), {}, "did you mean click-test?"),
        (("rollout", "run", "-s", "tasks.train=sites:shop-chepest"), {}, "did you mean shop-cheapest?"),
        (("rollout", "run", "-s", "tasks.train=arithmetic:tain"), {}, "did you mean train?"),
        (("rollout", "run", *ORACLE, "-s", "tasks.train=miniwob:click-tab-2"), {}, "did you mean click-tab?"),
        (("rollout", "run", "-c", "dmeo"), {}, "a path, or a shipped name: did you mean demo?"),
        (("config", "show"), {"WEBGYM_ROLLOUT_EPISODES": "4"}, "WEBGYM_ROLLOUT__EPISODES: two underscores"),
        (("config", "show", "-s", "rollout.episodes=-3"), {}, "webgym config show | grep -F rollout.episodes"),
        (("rollout", "run", "--no-such-option"), {}, "webgym rollout --help"),
        (("tasks", "chek"), {}, "webgym tasks --help"),
        (("import", "webrl", "nowhere", "run"), {}, "webgym import --help"),
    ],
)
def test_the_hint_is_what_to_type_next(tmp_path, arguments, variables, wanted):
    _, hint = read_refusal(webgym(*arguments, cwd=tmp_path, **variables, code=2).stderr)
    assert hint.startswith(wanted) and len(hint) < 300


def test_a_command_to_type_next_can_be_pasted(tmp_path):
    for command, name in product(("prepare", "train", "resume"), ("my rün $(1)", "./-run")):
        _, hint = refused(command, name, cwd=tmp_path, code=3)
        word = shlex.split(hint.partition(",")[0].partition(":")[0])[2]
        assert word in (name, str(tmp_path / name)) and not word.startswith("-")


@pytest.mark.parametrize("path", ["evaluations/a-1", "a b/record.json", "a b", "."])
def test_a_path_that_begins_like_an_argument_is_quoted_as_a_whole(path, tmp_path, monkeypatch, capsys):
    (tmp_path / "my runs").mkdir()
    monkeypatch.chdir(tmp_path / "my runs")
    monkeypatch.setattr("sys.argv", ["webgym", "eval", "a b", "."])
    fail("message", f"webgym show {Path.cwd() / path}, then more")
    assert f"webgym show {shlex.quote(str(Path.cwd() / path))}, then more" in capsys.readouterr().err


WANT_A_RUN = [
    *(("prepare",), ("train",), ("inspect-buffer",), ("export-sharegpt",), ("resume",), ("status",), ("judge",)),
    *(("score",), ("report",), ("track",), ("gc",), ("view",), ("config", "show", "--run")),
]


@pytest.mark.parametrize(
    "words", [*WANT_A_RUN, ("show", "RUN", "x"), ("compare", "RUN"), ("compare", "RUN", "another")]
)
def test_commands_on_a_run_that_is_not_there(tmp_path, run, words):
    given = [run if word == "RUN" else word for word in words]
    message, hint = refused(*given, *([] if "RUN" in words else [run]), cwd=tmp_path, code=3)
    assert message == f"{run}: there is no run"
    assert hint == f"webgym rollout {run}"
    assert not run.exists()


@pytest.mark.parametrize("command", ["rollout", "train", "status", "inspect-buffer", "loop", "gateway"])
def test_a_model_and_the_parts_of_a_run_are_no_runs(tmp_path, command):
    run = RunDir(tmp_path / "run")
    write_json(run.config, {"policy_config": {}})
    write_json(run.provenance, {"webgym": "0.0.1"})
    model, parts = tmp_path / "model", [run.root / "checkpoints" / "model_1", run.trajectories(Split.TRAIN)]
    for folder in (model, parts[0]):
        write_json(folder / "config.json", {"architectures": ["Qwen3VLForConditionalGeneration"]})
    write_json(parts[1] / "iteration_0000" / "part-0.jsonl", {})
    before = sorted(tmp_path.rglob("*"))
    message, _ = refused(command, model, cwd=tmp_path)
    assert message.startswith(f"{model / 'config.json'} ")
    for part in parts:
        assert refused(command, part, cwd=tmp_path)[1] == f"webgym status {run.root}"
        into = ("eval", "oracle", "-b", "miniwob:click-test", "-o", part)
        assert refused(*into, cwd=tmp_path)[1] == f"webgym status {run.root}"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", ["rollout", "prepare", "train", "resume", "status", "inspect-buffer"])
def test_a_file_or_a_broken_link_is_no_run(tmp_path, command):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("mine")
    link.symlink_to(link)
    for named, place in ((file, file), (file / "run", file), (link / "run", link)):
        message, _ = refused(command, named, cwd=tmp_path)
        assert f"{place} is not a folder" in message
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    "words",
    [("rollout", ""), ("status", " "), ("train", ""), ("compare", "", "b"), ("compare", "a", ""), ("rollout", "a\nb")],
)
def test_a_run_without_a_name_or_with_two_lines_is_refused(tmp_path, words):
    result = webgym(*words, cwd=tmp_path, code=2)
    assert "name the run's folder" in " ".join(result.stderr.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [("status", "RUN"), ("prepare", "RUN", "-n"), ("eval", "RUN", "-b", "miniwob:all", "-n")]
)
def test_a_run_that_this_version_cannot_read(tmp_path, words):
    run = filled(tmp_path)
    run.provenance.write_text('{"webgym": "9.1.0"}')
    words = [run.root if word == "RUN" else word for word in words]
    message, hint = refused(*words, cwd=tmp_path, code=1)
    assert "a run of webgym 9.1.0" in message and hint.startswith("pip install")
    run.provenance.write_text("{}")
    for text in ('{"seed":', "[]"):
        run.config.write_text(text)
        message, hint = refused(*words, cwd=tmp_path, code=1)
        assert str(run.config) in message and hint == f"restore {run.config} from a copy"
    run.config.unlink()
    assert str(run.config) in refused(*words, cwd=tmp_path, code=1)[0]


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device"])
@pytest.mark.parametrize("command", ["status", "inspect-buffer"])
def test_what_is_no_file_in_the_place_of_trajectories(tmp_path, command, kind):
    run = filled(tmp_path)
    part = run.part(Split.TRAIN, 0)
    part.unlink()
    with socket.socket(socket.AF_UNIX) as opened:
        make = {
            "pipe": lambda: os.mkfifo(part),
            "socket": lambda: (opened.bind(str(tmp_path / "s")), (tmp_path / "s").rename(part)),
            "folder": part.mkdir,
            "device": lambda: part.symlink_to("/dev/zero"),
        }
        make[kind]()
    message, hint = refused(command, run.root, cwd=tmp_path, code=1)
    assert str(part) in message and hint.startswith("move it away: mv ")


def test_names_that_are_not_utf_8(tmp_path):
    for arguments in (["status", b"run\xff"], ["config", "show", "-s", b"tasks.train=\xff"]):
        result = subprocess.run([*WEBGYM, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 2 and "is not UTF-8" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (MemoryError(), "ulimit -v"),
        (RuntimeError("std::bad_alloc"), "ulimit -v"),
        (RuntimeError("can't start new thread"), "ulimit -v"),
    ],
)
def test_a_limit_of_the_shell_is_named(error, hint):
    assert hint in main._find_limit(error)
    assert not main._find_limit(StoreError("run: can't be read"))


def test_without_docstrings_there_is_help():
    environment = os.environ | {"PYTHONOPTIMIZE": "2"}
    result = subprocess.run([*WEBGYM, "--help"], env=environment, capture_output=True, text=True)
    assert result.returncode == 0 and "Run the pending episodes" in result.stdout


def test_a_current_folder_that_was_removed(tmp_path):
    (tmp_path / "gone").mkdir()
    command = ["sh", "-c", 'rmdir ../gone; "$@"', "sh", *WEBGYM, "status", str(tmp_path)]
    result = subprocess.run(command, cwd=tmp_path / "gone", capture_output=True, text=True)
    assert result.returncode == 2 and result.stderr.splitlines()[0] == "webgym: the current folder was removed"
