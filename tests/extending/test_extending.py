"""What a user registers from a folder of theirs, editing no file of the package, works through the commands."""

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.docs.pages import ROOT
from tests.executable import Command
from tests.extending.dial_policy import serve_policy
from tests.imports.foreign import ANSWER
from tests.records.builders import png

PLUGINS = Path(__file__).parent


SETTINGS = ("-s", 'plugins=["dial_plugin.py"]', "-s", "tasks.train=dial:all")
ROLLOUT = ("rollout", "run", "--policy", "oracle")


@pytest.fixture
def webgym(tmp_path):
    """Run a command in a folder outside the repository, where the plugins' files lie."""
    for file in PLUGINS.glob("*_*.py"):
        shutil.copy(file, tmp_path)

    def run(*arguments: str) -> str:
        return forked.webgym(*arguments, cwd=tmp_path).stdout

    return run


def settings(*assignments: str) -> tuple[str, ...]:
    return tuple(word for assignment in assignments for word in ("-s", assignment))


def stored(folder: Path) -> list[dict[str, Any]]:
    files = folder.glob("run/train_trajectories/*/*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_toy_environment_is_rolled_out_shown_and_reported(webgym, tmp_path):
    webgym(*ROLLOUT, "--episodes", "2", *SETTINGS)
    trajectories = stored(tmp_path)
    assert len(trajectories) == 2
    for trajectory in trajectories:
        assert trajectory["task"]["environment"] == "dial" and trajectory["outcome"]["reward"] == 1.0
        assert {step["action"]["calls"][0]["name"] for step in trajectory["steps"]} == {"turn"}
        (result,) = trajectory["steps"][0]["observation"]["results"]
        assert result["text"] == "the dial shows 0" and result["image"]["width"] == 64
    assert "dial\t2\t2" in webgym("inspect-buffer", "run")
    assert "dial-" in webgym("show", "run", trajectories[0]["id"])
    webgym("report", "run")
    assert "2 episodes" in (tmp_path / "run" / "report.html").read_text()
    webgym(*ROLLOUT, "--episodes", "4")  # the run keeps its plugins
    assert len(stored(tmp_path)) == 4


def test_an_episode_out_of_steps_is_scored_0_and_no_judge_changes_that(webgym, tmp_path):
    webgym(*ROLLOUT, "--episodes", "1", *SETTINGS, *settings("tasks.train=dial:3", "agent.max_turns=1"))
    (trajectory,) = stored(tmp_path)
    assert (trajectory["outcome"]["stop"], trajectory["outcome"]["reward"]) == ("step_limit", 0.0)
    plan = json.loads(webgym("judge", "run", "--all", "--dry-run", *settings("judge.base_url=scripted")))
    assert (plan["owed"], plan["skipped_scored_by_environment"]) == (0, 1)


def test_a_toy_environment_is_resumed_where_it_was_killed(webgym, tmp_path):
    arguments = (*ROLLOUT, "--episodes", "40", *SETTINGS, "-s", "rollout.concurrency=2")
    command = Command(tmp_path, *arguments, DIAL_PAUSE="0.2")
    command.until(lambda: stored(tmp_path))
    command.send(signal.SIGKILL)
    assert 0 < len(stored(tmp_path)) < 40
    webgym("resume", "run")
    assert len({trajectory["id"] for trajectory in stored(tmp_path)}) == len(stored(tmp_path)) == 40


def test_its_episodes_train_a_backend_of_the_user_s(webgym, tmp_path, tiny_model_dir):
    plugins = ("-s", 'plugins=["dial_plugin.py", "train_plugin.py"]', "-s", "tasks.train=dial:all")
    model = (
        "-s",
        f"policy_config.base_model={tiny_model_dir}",
        "-s",
        "train.algorithm=dial_trainer",
        "-s",
        "algorithm_config.bf16=false",
    )
    webgym(*ROLLOUT, "--episodes", "3", *plugins, *model)
    replies = webgym("export-sharegpt", "run", "--format", "replies").splitlines()
    assert replies and all('"turn"' in json.loads(reply) for reply in replies)
    webgym("prepare", "run")
    webgym("train", "run")
    (samples,) = (tmp_path / "run").rglob("samples.json")
    assert 0 < json.loads(samples.read_text()) <= len(replies)
    assert json.loads(webgym("status", "run", "--json"))["policy_version"] == 1
    webgym("report", "run")


def write_example(part: str, file: Path) -> None:
    """Write the example of the documentation that contains a text."""
    page = (ROOT / "docs/extending.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if part in block)
    file.write_text(code)


def test_the_documented_task_format_is_converted(webgym, tmp_path):
    write_example("TASK_FORMATS", tmp_path / "my_tasks.py")
    (tmp_path / "quiz.csv").write_text("number,question,page\n1,Who?,http://a.test/\n")
    webgym("tasks", "convert", "quiz.csv", "--format", "quiz", "-o", "quiz.jsonl", *settings('plugins=["my_tasks.py"]'))
    (task,) = map(json.loads, (tmp_path / "quiz.jsonl").read_text().splitlines())
    assert (task["id"], task["instruction"], task["environment"]) == ("1", "Who?", "web")


def test_an_import_format_of_the_user_s_brings_episodes(webgym, tmp_path):
    write_example("IMPORT_FORMATS", tmp_path / "my_logs.py")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "1.png").write_bytes(png())
    fields = {
        "id": "a",
        "goal": "Find it.",
        "url": "https://a.example/",
        "reward": 1.0,
        "started_at": "2026-01-02T00:00:00Z",
    }
    steps = [{"response": ANSWER, "screenshot": "1.png"}]
    for number, changes in enumerate(({}, {"reward": 0.0}, {"steps": [{"response": ANSWER}]}, {"goal": 3})):
        file = tmp_path / "logs" / f"{number}.episode.json"
        file.write_text(json.dumps({**fields, "steps": steps, **changes}))
    own = settings('plugins=["my_logs.py"]')
    for form, imported in (("my-logs", 2), ("auto", 0)):
        summary = json.loads(webgym("import", form, "logs", "run", *own).splitlines()[-1])
        assert summary["imported"] == imported
    assert (summary["skipped"]["already_imported"], summary["skipped"]["not_understood"]) == (2, 2)
    assert {trajectory["outcome"]["reward"] for trajectory in stored(tmp_path)} == {0.0, 1.0}


@pytest.mark.stack
def test_a_protocol_of_the_user_s_judges_its_episodes_and_an_estimator_of_the_user_s_trains_on_them(
    webgym, tmp_path, tiny_model_dir
):
    own = settings('plugins=["dial_plugin.py", "dial_judge.py", "dial_estimator.py"]', "tasks.train=dial:all")
    model = settings(f"policy_config.base_model={tiny_model_dir}", "train.algorithm=dial_centred", "agent.num_chains=2")
    plain = settings("policy_config.top_k=-1", "policy_config.top_p=1")
    with serve_policy(tiny_model_dir) as url:
        rollout = ("rollout", "run", "--policy", url, "--episodes", "4")
        webgym(*rollout, *own, *model, *plain, "-s", "judge.protocol=dial_turned")
    assert [trajectory["outcome"]["reward"] for trajectory in stored(tmp_path)] == [None] * 4
    summary = json.loads(webgym("judge", "run", "-s", "judge.base_url=scripted").splitlines()[-1])
    assert (summary["judged"], summary["successes"], summary["judge_failed"]) == (4, 2, 0)
    assert json.loads(webgym("prepare", "run").splitlines()[-1])["trained"] == 4
    webgym("train", "run")
    webgym("resume", "run")
    assert json.loads(webgym("status", "run", "--json"))["policy_version"] == 1
    webgym("inspect-buffer", "run")
    webgym("report", "run")
    assert "dial_centred" in (tmp_path / "run" / "report.html").read_text()
