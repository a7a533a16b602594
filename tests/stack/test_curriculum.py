"""WebRL's phases whole: the executable, Chromium, vLLM, both trainers, the policy's own critic; killed and taken up."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.executable import Command, events, finished, needs_chromium, trajectories, webgym
from tests.stack_fixtures import needs

pytestmark = [pytest.mark.stack, pytest.mark.browser, pytest.mark.timeout(1200)]

TASKS = 3
SMALL = (
    *("rollout.train_max_steps.easy=8", "rollout.train_max_steps.medium=8", "rollout.train_max_steps.hard=8"),
    *("rollout.test_episodes=2", "rollout.test_max_steps.easy=2", "rollout.test_max_steps.medium=2"),
    *("tasks.train=webarena:fixture-cheapest,fixture-sorted,fixture-weight", "policy_config.max_new_tokens=16"),
    *("loop.demonstration_episodes=6", "algorithm_config.num_train_epochs=1", "curriculum.survey_episodes=3"),
    *("loop.val_before_train=true", "agent.num_chains=1", "browser.height=768"),
    *("loop.eval_every=2", "rl.replay.window=[1,null]", "generate.feasibility=true"),
)


@pytest.fixture(scope="module", autouse=True)
def chromium():
    needs_chromium()
    needs("serve")


def words(model: Path, phases: int, *more: str) -> tuple[str, ...]:
    """The words of the command, but for the run."""
    settings = (f"policy_config.base_model={model}", *SMALL, *more)
    options = ("-c", "demo-webrl", "--phases", str(phases), "--tasks-per-phase", str(TASKS))
    return (*options, *(word for one in settings for word in ("-s", one)))


def new_tasks(run: Path, iteration: int) -> list[dict]:
    path = run / "tasks" / f"new.iteration_{iteration:04d}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def checked(run: Path, phases: int) -> None:
    """What phases leave, whatever came between their steps."""
    numbers = range(1, phases + 1)
    assert not (run / "state.json").exists()
    assert [event["phase"] for event in events(run, "phase")] == [*numbers]
    records = [json.loads(path.read_text()) for path in sorted((run / "checkpoints").glob("*/checkpoint.json"))]
    by_name = {one["version"]: one["algorithm"] for one in records}
    assert by_name == {1: "sft"} | {number + 1: "webrl" for number in numbers}
    assert (run / "model.pt/critic/outcome_heads.safetensors").is_file()
    for iteration in numbers:
        judged = {verdict["trajectory"] for verdict in verdicts(run, iteration)}
        wanted = {task["id"] for task in new_tasks(run, iteration)}
        ran = trajectories(run, iteration=iteration)
        assert {one["task"]["id"] for one in ran} == wanted
        assert len(finished(run, iteration=iteration)) == len(set(finished(run, iteration=iteration))) == len(wanted)
        assert all(one["outcome"]["reward"] is not None or one["id"] in judged for one in ran)
    assert {task["extra"]["generated"] for task in new_tasks(run, 1)} == {True}
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
    command = Command(folder, "curriculum", run, *words(tiny_pages_model_dir, 2))
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
    assert [path.name for path in (run / "tasks").glob("new.*.jsonl") if path.name.count(".") == 2] == [
        "new.iteration_0001.jsonl"
    ]


def test_it_ends_as_if_nothing_had_been(killed):
    run = killed
    parts = [path for of in (run, run / "survey") for path in of.glob("*_trajectories/*/part-*")]
    stored = {path: path.read_bytes() for path in (*parts, *run.glob("tasks/new.iteration_000?.jsonl"))}
    webgym(run.parent, "resume", run)
    for path, before in stored.items():
        assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1]), f"what was stored stays: {path}"
    checked(run, 2)
    assert [event["critic"] for event in events(run, "generate")] == ["none", "critic"]  # a phase leaves a critic
    assert [event["iteration"] for event in events(run, "evaluation")] == [0, 2, 3]
    assert "nothing was interrupted" in webgym(run.parent, "resume", run).err.read_text()
