"""A phase of WebRL whole: the executable, Chromium, vLLM, both trainers, the policy's critic; killed and taken up."""

import json
import signal
from pathlib import Path

import pytest

from tests import forked
from tests.executable import Command, events, finished, needs_chromium, trajectories, webgym
from tests.stack_fixtures import needs

pytestmark = [pytest.mark.stack, pytest.mark.browser, pytest.mark.timeout(1200)]

TASKS = 3
SMALL = (
    *("rollout.test_episodes=2", "policy_config.max_new_tokens=16", "agent.num_chains=1", "browser.height=768"),
    "tasks.train=webarena:fixture-cheapest,fixture-sorted,fixture-weight",
    *("loop.demonstration_episodes=6", "algorithm_config.num_train_epochs=1", "curriculum.survey_episodes=3"),
    *("loop.val_before_train=true", "loop.eval_every=2", "rl.replay.window=[1,null]", "generate.tasks_per_request=6"),
)


@pytest.fixture(scope="module", autouse=True)
def chromium():
    needs_chromium()
    needs("serve")


def new_tasks(run: Path, iteration: int) -> list[dict]:
    path = run / "tasks" / f"new.iteration_{iteration:04d}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def checked(run: Path) -> None:
    """What the phase leaves, whatever came between its steps."""
    assert not (run / "state.json").exists()
    assert [event["phase"] for event in events(run, "phase")] == [1]
    records = [json.loads(path.read_text()) for path in (run / "checkpoints").glob("*/checkpoint.json")]
    assert {one["version"]: one["algorithm"] for one in records} == {1: "sft", 2: "webrl"}
    assert (run / "model.pt/critic/outcome_heads.safetensors").is_file()
    judged = {verdict["trajectory"] for verdict in verdicts(run, 1)}
    new, ran = new_tasks(run, 1), trajectories(run, iteration=1)
    assert {one["task"]["id"] for one in ran} == {task["id"] for task in new}
    assert len(finished(run, iteration=1)) == len(set(finished(run, iteration=1))) == len(new)
    assert all(one["outcome"]["reward"] is not None or one["id"] in judged for one in ran)
    assert {task["extra"]["generated"] for task in new} == {True}
    assert len(finished(run / "survey")) == 3
    rows = [json.loads(line) for line in (run / "rl_data/rows.jsonl").read_text().splitlines()]
    assert any(not row["replayed"] for row in rows)


def verdicts(run: Path, iteration: int) -> list[dict]:
    path = run / "train_trajectories" / f"iteration_{iteration:04d}" / "verdicts-0.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def killed(tiny_pages_model_dir, tmp_path_factory) -> Path:
    """A run killed in phase 1's training; tests/loop has all other moments, and phases that a reward model scores."""
    folder = tmp_path_factory.mktemp("killed")
    run = folder / "run"
    settings = (word for one in (f"policy_config.base_model={tiny_pages_model_dir}", *SMALL) for word in ("-s", one))
    phases = ("--phases", 1, "--tasks-per-phase", TASKS)
    command = Command(folder, "curriculum", run, "-c", "demo-webrl", *phases, *settings)
    data = run / "rl_data/rows.jsonl"  # before, only the demonstrations are trained on
    command.until(lambda: data.exists() and [*run.glob("checkpoints/*.partial/webgym_training.json")], pause=0.005)
    assert command.send(signal.SIGKILL) == -signal.SIGKILL
    return run


def test_killed_in_the_first_phase_it_keeps_what_it_has(killed):
    run = killed
    assert (run / "state.json").exists()
    assert len(finished(run)) == len(set(finished(run))) == 6
    assert len(finished(run / "survey")) == 3
    assert len(finished(run, iteration=1)) == len(new_tasks(run, 1))
    kept = [path.name for path in (run / "tasks").glob("new.*.jsonl") if path.name.count(".") == 2]
    assert kept == ["new.iteration_0001.jsonl"]


def test_it_ends_as_if_nothing_had_been(killed):
    run = killed
    parts = [path for of in (run, run / "survey") for path in of.glob("*_trajectories/*/part-*")]
    stored = {path: path.read_bytes() for path in (*parts, *run.glob("tasks/new.iteration_000?.jsonl"))}
    webgym(run.parent, "resume", run)
    for path, before in stored.items():
        assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1]), f"what was stored stays: {path}"
    checked(run)
    assert [event["iteration"] for event in events(run, "evaluation")] == [0, 2]
    assert "nothing was interrupted" in forked.webgym("resume", run, cwd=run.parent).stderr


def test_a_phase_leaves_a_critic_that_values_the_tasks_of_the_next_one(killed):
    every = ("-s", "generate.critic_window=[0,1]", "-s", f"generate.tasks={TASKS}")
    webgym(killed.parent, "tasks", "generate", killed, "-o", killed.parent / "new.jsonl", *every)
    assert [event["critic"] for event in events(killed, "generate")] == ["none", "critic"]
