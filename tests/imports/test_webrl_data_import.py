"""WebRL's released data, as conversations and as trajectories."""

import json

import pytest

from tests.imports.foreign import pickled, thing, torch_archive, webgym_episode, webgym_file
from tests.imports.test_import_execute import bring
from tests.records.builders import new_run
from webgym_cli.agent.prompt import render_step
from webgym_cli.config.load import load
from webgym_cli.errors import UsageError
from webgym_cli.imports.pickle_stubs import PickleRefused
from webgym_cli.imports.plan import plan_import
from webgym_cli.imports.source import NotUnderstood, SkipReason
from webgym_cli.imports.webrl_data import parse_prompt, read
from webgym_cli.prepare.sft.plan import plan_dataset
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import PromptSpec
from webgym_cli.records.webrl import WebRLActionName
from webgym_cli.store.buffer import scan
from webgym_cli.store.index.query import open_index
from webgym_cli.store.run import RunDir

SEARCH = '# Element: the search field\ndo(action="Search", argument="hat", element="3")'
EXIT = 'exit(message="12")'
USER = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n"
AS_CHAT = PromptSpec(version="webrl", options={"lenient": True, "max_characters": 15872})
REPLY = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n"


def prompt(task, page, *past):
    """Return a prompt as WebRL's process_data.py writes it."""
    text = f"Task Instruction: {task}\n\n"
    for number, response in enumerate(past):
        shown = "** Simplified html **" if number else task
        text += f"Round {number}\n\n{USER}{shown}\n\n{REPLY}{response}\n\n"
    return f"{text}Round {len(past)}\n\n{USER}{page}\n\n{REPLY}"


def steps(task="How many hats?"):
    return [(prompt(task, "<html> first </html>"), SEARCH), (prompt(task, "<html> second </html>", SEARCH), EXIT)]


def conversations(path, *pairs):
    records = [
        {"conversations": [{"from": who, "value": value} for who, value in zip(("human", "gpt"), pair, strict=True)]}
        for pair in pairs
    ]
    path.write_text(json.dumps(records))
    return path


def trajectories(path, *episodes):
    value = []
    for given, reward in episodes:
        fields = {"next_observation": "", "task": "", "reward": reward, "done": False, "trajectory_reward": reward}
        value.append([{"observation": page, "action": action, **fields} for page, action in given])
    return torch_archive(path, pickled(value))


def test_a_prompt_is_instruction_earlier_responses_and_page():
    assert parse_prompt(steps()[1][0]) == ("How many hats?", (SEARCH,), "<html> second </html>")
    assert parse_prompt(steps()[0][0].removesuffix(REPLY))[2] == "<html> first </html>"
    for odd in ("", "Task Instruction: x", steps()[1][0].replace("Round 1", "Round 2")):
        with pytest.raises(NotUnderstood):
            parse_prompt(odd)


def test_consecutive_conversations_of_a_task_are_an_episode(tmp_path):
    result = list(read(conversations(tmp_path / "web_policy_sft.json", *steps(), *steps("And caps?")), None))
    assert [one.task.instruction for one in result] == ["How many hats?", "And caps?"]
    first = result[0]
    assert [step.html for step in first.steps] == ["<html> first </html>", "<html> second </html>"]
    assert [step.response for step in first.steps] == [SEARCH, EXIT]
    assert first.steps[0].action.name is WebRLActionName.SEARCH
    assert first.steps[1].action == Action(name=ActionName.ANSWER, text="12")
    assert (first.outcome.reward, first.outcome.stop, first.outcome.answer) == (1.0, Stop.ANSWERED, "12")
    assert (first.split, first.task.environment, first.task.extra) == (Split.TRAIN, "webarena", {"generated": True})


def test_trajectories_keep_their_reward(tmp_path):
    result = list(read(trajectories(tmp_path / "X.pt", (steps(), 1), (steps("And caps?"), 0)), None))
    assert [one.outcome.reward for one in result] == [1.0, 0.0]
    assert [len(one.steps) for one in result] == [2, 2]
    (lost,) = read(trajectories(tmp_path / "Y.pt", (steps(), None)), None)
    assert lost.why is SkipReason.NOT_UNDERSTOOD, "what has no reward is no failure of the policy"


def test_a_missing_round_leaves_the_episode_out(tmp_path):
    file = conversations(tmp_path / "web_policy_sft.json", steps()[1], *steps("And caps?"))
    torn = conversations(tmp_path / "torn.json", steps()[0], steps("And caps?")[1])
    lost, whole = read(file, None)
    assert (lost.why, whole.task.instruction) == (SkipReason.NOT_UNDERSTOOD, "And caps?")
    assert [one.why for one in read(torn, None)] == [SkipReason.NOT_UNDERSTOOD]


def test_files_of_another_form_are_refused_and_nothing_is_executed(tmp_path):
    flat = torch_archive(tmp_path / "X_filter.pt", pickled([{"observation": "x"}]))
    with pytest.raises(PickleRefused, match=r"take X\.pt"):
        list(read(flat, None))
    with pytest.raises(PickleRefused, match=r"it asks for 'os\.Popen'"):
        list(read(torch_archive(tmp_path / "bad.pt", pickled([thing("os.Popen")])), None))
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(PickleRefused, match="no list of conversations"):
        list(read(tmp_path / "other.json", None))


def test_it_is_trained_in_the_form_that_policies_act_in(tmp_path):
    run = new_run(tmp_path / "run", load(["webrl"]))
    conversations(tmp_path / "web_policy_sft.json", *steps())
    summary, _ = bring(run, tmp_path / "web_policy_sft.json", "webrl", prompt=AS_CHAT)
    assert (summary["format"], summary["imported"], summary["solved"], summary["new_images"]) == ("webrl-data", 1, 1, 0)
    (trajectory,) = scan(run, Split.TRAIN, 0)
    rendered = render_step(trajectory, 1).messages
    assert [message.role for message in rendered] == ["system", "user", "assistant", "user"]
    assert rendered[2].content == SEARCH and rendered[3].content.endswith("<html> second </html>")
    assert render_step(trajectory, 1).images == ()
    with open_index(run) as index:
        plan = plan_dataset(run, load(["webrl"]), index).to_json()
    assert (plan["trajectories"], plan["eligible_steps"]) == (1, 2)


def test_a_reward_model_has_decided_whatever_the_runs_threshold_is(tmp_path):
    run = new_run(tmp_path / "run", load(["webrl"]))
    summary, _ = bring(run, trajectories(tmp_path / "X.pt", (steps(), 1)), "webrl", prompt=AS_CHAT, success_threshold=5)
    assert (summary["imported"], summary["solved"]) == (1, 1)


def test_the_raw_text_of_a_run_is_their_prompt_byte_for_byte(tmp_path):
    run = new_run(tmp_path / "run", load(["webrl"], ["context_config.prompt_version=webrl_released"]))
    page = "<html> a long page </html>" * 1000
    # Their limit is on the earlier rounds and the page; the task is not counted.
    history = f"Round 0\n\n{USER}How many hats?\n\n{REPLY}{SEARCH}\n\n"
    given = [(prompt("How many hats?", page[:15872]), SEARCH)]
    given.append((prompt("How many hats?", page[: 15872 - len(history)], SEARCH), EXIT))
    file = conversations(tmp_path / "web_policy_sft.json", *given)
    bring(run, file, "webrl", prompt=AS_CHAT.model_copy(update={"version": "webrl_released"}))
    (trajectory,) = scan(run, Split.TRAIN, 0)
    assert [render_step(trajectory, index).messages[0].content for index in (0, 1)] == [result for result, _ in given]


def test_texts_are_refused_by_a_run_of_screenshots_and_the_other_way_round(tmp_path):
    run = RunDir(tmp_path / "run")
    file = conversations(tmp_path / "web_policy_sft.json", *steps())
    with pytest.raises(UsageError, match="its pages are texts"):
        plan_import(run, "webrl", file)
    pictures = webgym_file(tmp_path / "logs", [webgym_episode()])
    for name in ("webgym", "auto"):
        with pytest.raises(UsageError, match="its pages are screenshots"):
            plan_import(run, name, pictures, prompt=AS_CHAT)
