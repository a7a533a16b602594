"""The expert's episodes of questions: through the same rollout as a policy's, and on into a dataset."""

import json
from itertools import chain

import pytest

from tests.cli.runs import model
from tests.forked import webgym
from tests.rollout.conftest import roll_stage
from webgym_cli.agent.actions.builtin_call_formats import HERMES
from webgym_cli.agent.client.chat_request import EncodedImages, build_request_body
from webgym_cli.agent.prompt import render_step
from webgym_cli.config.load import load
from webgym_cli.errors import UsageError
from webgym_cli.loop.rollout_setup import plan_current_rollout
from webgym_cli.records.action import ActionName
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import PromptSpec
from webgym_cli.store.buffer import scan
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore


@pytest.mark.parametrize(("name", "count"), [("test", 40), ("sums-test", 60)])
async def test_shipped_questions_are_solved(tmp_path, name, count):
    """tests/environments/tools/test_spec.py has the expressions of the others."""
    given = ("agent.num_chains=1", f"tasks.train=arithmetic:{name}")
    *_, summary, outcome = await roll_stage(tmp_path, "oracle", count, *given)
    assert (summary["episodes"], summary["success_rate"], summary["failures"]) == (count, 1.0, {})
    assert len({trajectory.task.id for trajectory in outcome}) == count
    for trajectory in outcome:
        assert (trajectory.outcome.reward, trajectory.outcome.stop) == (1.0, Stop.ANSWERED)
        first, second = trajectory.steps
        expression, answer = trajectory.task.extra["expression"], trajectory.task.extra["answer"]
        assert json.loads(first.response.split("\n")[1])["arguments"] == {"expression": expression}
        assert [result.text for result in second.observation.results] == [answer]
        assert second.response == trajectory.outcome.answer == f"The answer is \\boxed{{{answer}}}."


async def test_an_expert_of_a_thinking_model_acts_after_a_thought(tmp_path):
    given = ("agent.num_chains=1", "tasks.train=arithmetic:test", "policy_config.base_model=Qwen/Qwen3-VL-8B-Thinking")
    *_, summary, outcome = await roll_stage(tmp_path, "oracle", 2, *given)
    assert summary["success_rate"] == 1.0
    for step in chain.from_iterable(trajectory.steps for trajectory in outcome):
        assert step.response.startswith("<think>\n\n</think>\n\n")


def test_a_question_without_workings_is_named_before_anything_runs(tmp_path):
    data = tmp_path / "questions.json"
    data.write_text(json.dumps([{"id": "bare", "question": "Q", "answer": "1"}]))
    run, settings = RunDir(tmp_path / "run"), load(["arithmetic"], [f"tasks.train={data}"])
    with pytest.raises(UsageError, match="task bare: no expert solves it"):
        plan_current_rollout(run, settings, Split.TRAIN, "oracle", 1)
    plan_current_rollout(run, settings, Split.TRAIN, "vllm", 1)


def test_demonstrations_become_the_dataset_with_the_messages_of_a_chat_request(tmp_path):
    folder = model(tmp_path / "model")
    texts = ["-c", "arithmetic", "-s", f"policy_config.base_model={folder}", "-s", "venvs.device=cpu"]
    texts += ["-s", "algorithm_config.bf16=false", "-s", "algorithm_config.deepspeed_config_filename=null"]
    texts += ["-s", "train.check_template=false"]
    webgym("rollout", "run", *texts, "--policy", "oracle", "--episodes", 40, "--min-success", 1, cwd=tmp_path)
    webgym("prepare", "run", "-s", "algorithm_config.val_split_ratio=0", cwd=tmp_path)
    run = RunDir(tmp_path / "run")
    records = json.loads((run.dataset / "finetune_train.json").read_text())
    stored = {trajectory.id: trajectory for trajectory in scan(run, Split.TRAIN, 0)}
    assert (len(stored), len(records)) == (40, 80)
    images = EncodedImages(ScreenshotStore(run.screenshots).get)
    prompts = [render_step(trajectory, index) for trajectory in stored.values() for index in range(2)]
    requests = [json.loads(build_request_body(prompt, images, {}))["messages"] for prompt in prompts]
    for record in records:
        *prompt, reply = record["conversations"]
        roles = {"human": "user", "gpt": "assistant"}
        messages = [{"role": roles[turn["from"]], "content": turn["value"]} for turn in prompt]
        assert [{"role": "system", "content": record["system"]}, *messages] in requests
        assert reply["from"] == "gpt"
        for turn in record["conversations"][1::2]:
            action = HERMES.parse(turn["value"], PromptSpec(), truncated=False, max_calls=16)
            assert action.name is (ActionName.CALL if "calculator" in turn["value"] else ActionName.ANSWER)
