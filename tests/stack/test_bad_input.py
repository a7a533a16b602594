"""Wrong input and a machine that misbehaves: one clear line, the published exit code, and nothing lost."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.stack.killing import (
    ARGV,
    Command,
    environment,
    failures,
    file_system,
    fill,
    finished,
    needs_chromium,
    refused,
    stored,
    trajectories,
    webgym,
)
from tests.stack_fixtures import needs

DEMO = ("-c", "demo", "-s", "rollout.concurrency=4")
ORACLE = (*DEMO, "--policy", "oracle", "--episodes")


@pytest.fixture(scope="session")
def chromium() -> str:
    return needs_chromium()


@pytest.fixture
def run(tmp_path) -> Path:
    return tmp_path / "run"


@pytest.fixture(scope="module")
def collected(chromium, tiny_model_dir, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("collected") / "run"
    webgym(run.parent, "rollout", run, *ORACLE, 16, "-s", f"policy_config.base_model={tiny_model_dir}")
    return run


@pytest.fixture
def copy(collected, tmp_path) -> Path:
    return Path(shutil.copytree(collected, tmp_path / "run", symlinks=True))


def fails(folder: Path, code: int, *arguments: object) -> tuple[str, str]:
    return refused(webgym(folder, *arguments, code=code))


GOOD = '{"id": "t", "start_url": "click-test.html"}\n'


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (None, "tasks.jsonl: the task file can't be read: No such file or directory"),
        ("", "tasks.jsonl: no task in the file"),
        (GOOD + '{"id": "t2", "start', "tasks.jsonl:2: not JSON"),
        (GOOD + "[1]\n", "tasks.jsonl:2: a task must be a JSON object"),
        (GOOD + '{"start_url": "x"}\n', "tasks.jsonl:2: id: Field required"),
        (GOOD + '{"id": "t2", "extra": 3}\n', "tasks.jsonl:2: extra"),
        (GOOD + '{"id": "t2", "environment": "mars"}\n', "tasks.jsonl:2: environment"),
        (
            GOOD + '{"id": "t2", "start_url": "no-such-page.html"}\n',
            "tasks.jsonl:2: MiniWoB has no page 'no-such-page.html'",
        ),
    ],
)
def test_a_task_file(tmp_path, run, lines, said):
    file = tmp_path / "tasks.jsonl"
    if lines is not None:
        file.write_text(lines)
    message, _ = fails(tmp_path, 2, "rollout", run, *ORACLE, 4, "-s", f"tasks.train={file}")
    assert said in message
    assert not run.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-s", "rollout.epsiodes=4"), "unknown setting 'rollout.epsiodes'; did you mean 'rollout.episodes'?"),
        (("-s", "rollout.episodes=many"), "rollout.episodes: "),
        (("-s", "rollout.episodes"), "-s takes section.key=value"),
        (("-c", "nowhere.yaml"), "nowhere.yaml"),
        (("--policy", "nonsense"), "'nonsense' is neither vllm, oracle nor a base URL"),
        (("-s", "rollout.policy=nonsense"), "'nonsense' is neither vllm, oracle nor a base URL"),
        (("-s", "tasks.train=miniwob:click-tset"), "MiniWoB has no page 'click-tset'"),
        (("--policy", "oracle", "-s", "tasks.train=miniwob:bisect-angle"), "bisect-angle"),
        ((*ORACLE, 4, "-s", "browser.executable=/no/such/chromium"), "/no/such/chromium"),
    ],
)
def test_settings_and_options(tmp_path, run, arguments, said):
    message, _ = fails(tmp_path, 2, "rollout", run, *arguments)
    assert said in message
    assert not (run / "train_trajectories").exists()


def test_commands_on_a_run_that_is_not_there(tmp_path, run):
    for command in ("prepare", "train", "inspect-buffer", "export-sharegpt", "resume"):
        message, hint = fails(tmp_path, 3, command, run)
        assert str(run) in message
        assert hint.startswith("webgym ")
        assert not run.exists()


@pytest.mark.stack
def test_train_needs_a_dataset_of_the_present(copy, tmp_path):
    message, hint = fails(tmp_path, 3, "train", copy)
    assert "there is no dataset" in message
    assert hint == f"webgym prepare {copy}"
    webgym(tmp_path, "prepare", copy)
    webgym(tmp_path, "prepare", copy)
    webgym(tmp_path, "train", copy, "-s", "algorithm_config.num_train_epochs=1")
    policy = (copy / "model.pt").resolve()
    assert "was already trained on it" in fails(tmp_path, 3, "train", copy)[0]
    assert (copy / "model.pt").resolve() == policy


@pytest.mark.stack
def test_images_that_are_gone_are_dropped_by_name(copy, tmp_path):
    gone = next(found for found in trajectories(copy) if found["outcome"]["reward"] == 1)
    sha = gone["steps"][0]["observation"]["screenshot"]["sha256"]
    users = [found for found in trajectories(copy) if sha in json.dumps(found)]
    (copy / f"screenshots/{sha[:2]}/{sha}.png").unlink()
    webgym(tmp_path, "prepare", copy)
    dropped = json.loads((copy / "llamafactory_data/dropped.json").read_text())
    assert dropped["dropped_steps"]["image_missing"] >= len(users)
    before = (copy / "llamafactory_data/finetune_train.json").read_bytes()
    assert sha.encode() not in before
    shutil.rmtree(copy / "screenshots")
    message, _ = fails(tmp_path, 1, "prepare", copy)
    assert "image_missing" in message
    assert (copy / "llamafactory_data/finetune_train.json").read_bytes() == before, "the earlier dataset stays"


@pytest.mark.stack
def test_a_model_that_is_none(copy, tmp_path, tiny_model_dir):
    needs("serve")
    wrong = ("-s", f"policy_config.base_model={tmp_path / 'no-model'}")
    message, _ = fails(tmp_path, 2, "rollout", tmp_path / "other", *DEMO, *wrong, "--policy", "vllm")
    assert str(tmp_path / "no-model") in message
    message, _ = fails(tmp_path, 2, "prepare", copy, *wrong)
    assert "policy_config.base_model" in message
    config = json.loads((copy / "config.json").read_text())
    config["policy_config"]["base_model"] = str(tmp_path / "no-model")
    (copy / "config.json").write_text(json.dumps(config))
    message, _ = fails(tmp_path, 2, "prepare", copy)
    assert str(tmp_path / "no-model") in message
    message, _ = fails(tmp_path, 2, "init-model", "tiny", copy)
    assert f"{copy} exists and is no tiny model" in message
    assert (copy / "config.json").exists()


@pytest.mark.stack
def test_a_port_in_use(tmp_path, tiny_model_dir):
    needs("serve")
    model = ("-c", "demo", "-s", f"policy_config.base_model={tiny_model_dir}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name, *options in (("serve",), ("rollout", "--policy", "vllm")):
            run = tmp_path / name
            message, hint = fails(tmp_path, 2, name, run, *options, *model, "-s", f"serve.port={port}")
            assert f"port {port} of 127.0.0.1 is in use" in message
            assert "serve.port=0" in hint


@pytest.mark.browser
def test_a_policy_url_that_nobody_serves(chromium, tmp_path, run):
    with socket.create_server(("127.0.0.1", 0)) as once:
        port = once.getsockname()[1]
    nobody = f"http://127.0.0.1:{port}/v1"
    message, _ = fails(tmp_path, 1, "rollout", run, *DEMO, "--policy", nobody, "--episodes", 20)
    assert f"127.0.0.1:{port}" in message
    assert "policy_unavailable" in message
    assert set(failures(run)) <= {"policy_unavailable", "cancelled"}
    webgym(tmp_path, "rollout", run, *ORACLE, 20)
    assert len(set(finished(run))) == 20


@pytest.mark.stack
def test_a_server_that_dies_ends_the_rollout_and_loses_nothing(policy_server, tiny_model_dir, tmp_path, run):
    model = ("-s", f"policy_config.base_model={tiny_model_dir}", "-s", f"venvs.serve={policy_server.plan.python}")
    command = Command(tmp_path, "rollout", run, *DEMO, *model, "--policy", "vllm", "--episodes", 60)
    command.until(lambda: stored(run).count(b"\n") >= 6)
    servers = [child for child in command.tree() if "api_server" in " ".join(child.cmdline()[:3])]
    assert servers, [child.cmdline() for child in command.tree()]
    before = stored(run)
    servers[0].kill()
    assert command.finish() == 4
    message, _ = refused(command)
    assert "vLLM ended while it was serving" in message
    assert "vllm.log" in message
    assert stored(run).startswith(before)
    assert set(failures(run)) <= {"cancelled", "policy_unavailable"}
    assert failures(run)
    before = stored(run)
    webgym(tmp_path, "rollout", run, "--policy", policy_server.base_url, "--episodes", 60)
    assert stored(run).startswith(before)
    assert len(finished(run)) == len(set(finished(run))) == 60


def browsers(command: Command) -> list[psutil.Process]:
    """The main processes of a command's Chromiums."""
    found = []
    for child in command.tree():
        with contextlib.suppress(psutil.Error):
            words = child.cmdline()
            if words and "chrom" in words[0] and not any(word.startswith("--type=") for word in words):
                found.append(child)
    return found


@pytest.mark.browser
def test_a_browser_that_is_killed_is_replaced(chromium, tmp_path, run):
    # so many at once that some are on a page, and not just between two pages, whenever the browser dies
    command = Command(tmp_path, "rollout", run, *ORACLE, 60, "-s", "rollout.concurrency=12")
    command.until(lambda: stored(run).count(b"\n") >= 10 and browsers(command))
    for browser in browsers(command):
        browser.kill()
    assert command.finish() == 0
    assert failures(run)
    assert set(failures(run)) == {"browser_crashed"}
    assert len(finished(run)) == len(set(finished(run))) == 60
    retried = {found["episode"] for found in trajectories(run) if found["outcome"]["failure"]}
    assert retried <= set(finished(run))


@pytest.fixture
def small_disk(tmp_path):
    with file_system(tmp_path / "disk", "2m") as folder:
        yield folder


@pytest.mark.browser
@pytest.mark.parametrize("pages", ["click-test", "click-dialog,click-tab,focus-text-2"])
def test_a_full_disk(chromium, tmp_path, small_disk, pages):
    run = small_disk / "run"
    command = Command(tmp_path, "rollout", run, *ORACLE, 80, "-s", f"tasks.train=miniwob:{pages}")
    command.until(lambda: stored(run).count(b"\n") >= 20)
    filler = fill(small_disk)
    before = stored(run)
    assert command.finish() == 1
    message, hint = refused(command)
    assert str(run) in message
    assert "No space left on device" in message
    assert hint.startswith("free disk space")
    assert stored(run).startswith(before)
    assert all(found["id"] for found in trajectories(run)), "each line is whole"
    kept = stored(run)
    filler.unlink()
    again = webgym(tmp_path, "resume", run)
    assert "damaged" not in again.err.read_text()
    assert stored(run).startswith(kept)
    assert len(finished(run)) == len(set(finished(run))) == 80


@pytest.mark.browser
def test_one_writer_a_run(chromium, tmp_path, run):
    first = Command(tmp_path, "rollout", run, *ORACLE, 60)
    first.until(lambda: stored(run).count(b"\n") >= 2)
    message, _ = fails(tmp_path, 75, "rollout", run, *ORACLE, 60)
    assert f"`webgym rollout {run}` (process {first.process.pid} on " in message
    webgym(tmp_path, "inspect-buffer", run)
    webgym(tmp_path, "rollout", run, *ORACLE, 60, "--dry-run")
    assert first.finish() == 0
    assert len(finished(run)) == 60


@pytest.mark.browser
def test_what_a_run_keeps_and_what_may_change(chromium, tmp_path, run):
    webgym(tmp_path, "rollout", run, *ORACLE, 4)
    before = (run / "config.json").read_bytes()
    frozen = ("-s", "seed=8", "-s", "context_config.interaction_mode=coordinates")
    message, _ = fails(tmp_path, 2, "rollout", run, *ORACLE, 6, *frozen)
    assert message.endswith("a run keeps these settings: seed, context_config.interaction_mode")
    assert (run / "config.json").read_bytes() == before
    webgym(tmp_path, "rollout", run, *ORACLE, 6, "-s", "rollout.concurrency=2")
    assert json.loads((run / "config.json").read_text())["rollout"]["concurrency"] == 2
    assert len(finished(run)) == 6


@pytest.mark.browser
def test_a_reader_that_has_seen_enough_leaves_a_run_to_resume(chromium, tmp_path, run):
    with (tmp_path / "err").open("wb") as err:
        command = [*ARGV, *map(str, ("rollout", run, *ORACLE, 40, "--json"))]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, env=environment())
        reader = subprocess.run(["head", "-n", "1"], stdin=writer.stdout, capture_output=True, text=True, check=True)
        writer.stdout.close()
        writer.wait(60)
    assert json.loads(reader.stdout)["event"] == "plan"
    said = (tmp_path / "err").read_text()
    assert "Traceback" not in said
    assert "BrokenPipe" not in said
    assert set(failures(run)) <= {"cancelled"}
    assert len(finished(run)) < 40
    webgym(tmp_path, "resume", run)
    assert len(finished(run)) == len(set(finished(run))) == 40
