"""The layouts of official scorers, read as those scorers read them."""

import json
import re
from itertools import product

import pytest
from PIL import Image

from tests.prepare.buffer import fill
from tests.prepare.exported import exported, recode, webp
from tests.records.builders import CRASHED, SOLVED, UNSOLVED, new_run, png, shot, step, trajectory
from webgym_cli.errors import UsageError
from webgym_cli.records.action import Action, ActionName, CustomAction
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Task
from webgym_cli.records.tool import ToolCall
from webgym_cli.records.trajectory import Element, Observation, ParseErrorKind
from webgym_cli.store.screenshots import ScreenshotStore

ANSWER = "It costs [about] 5\nEUR"
TASK = Task(id="BBC News--3", start_url="http://a/", extra={"reference_length": 4})
BUTTON = Element(id=7, role="button", name="Search", box=(0, 0, 1, 1))
MARKED = Observation(url="http://a/1", screenshot=shot(1), elements=(BUTTON,))


def clicked_episode(number, outcome=SOLVED, **changes):
    """Return an episode: a click, a click on a mark that failed, no action, the answer."""
    steps = (
        step(0),
        step(1, observation=MARKED, action=Action(name=ActionName.CLICK, element_id=7), action_error="gone"),
        step(2, action=None, parse_error=ParseErrorKind.NO_TOOL_CALL, response="Action: ANSWER; [no]"),
        step(3, action=Action(name=ActionName.ANSWER, text=ANSWER)),
    )
    done = outcome.model_copy(update={"answer": ANSWER if outcome is SOLVED else None})
    named = {"task": TASK, "instruction": "Find\nthe price.", **changes}
    return trajectory(number, steps=steps if outcome is SOLVED else steps[:3], outcome=done, **named)


@pytest.fixture
def run(tmp_path):
    run = new_run(tmp_path / "run")
    fill(run, clicked_episode(0), clicked_episode(1, UNSOLVED), trajectory(2, outcome=CRASHED))
    fill(run, trajectory(3, task=Task(id="../x y"), steps=1))
    return run


def list_folders(out):
    return sorted(path.relative_to(out).as_posix() for path in out.glob("*/*"))


def read_as_online_mind2web(folder):
    """Return what Online-Mind2Web's `run.py` reads of its schema 2: task, actions, thoughts, screenshots, answer."""
    result = json.loads((folder / "result.json").read_text())
    assert result["schema_version"] == "online-mind2web-v2"
    steps = result["action_history"]
    actions = [step["action"] for step in steps[:-1]]  # the last one is taken for the answer
    shots = [(folder / "trajectory" / step["screenshot"]).read_bytes() for step in steps]
    return result["task"], actions, [step["thought"] for step in steps], shots, result["agent_final_answer"]


def test_online_mind2web_reads_facts_and_the_answer_apart(run, tmp_path):
    out = tmp_path / "out"
    stats, _ = exported(run, out, format="online-mind2web")
    assert (stats.records, list_folders(out)) == (3, ["1/BBC_News--3", "1/___x_y", "2/BBC_News--3"])
    folder = out / "1" / "BBC_News--3"
    task, actions, thoughts, shots, answer = read_as_online_mind2web(folder)
    assert (task, answer, len(thoughts)) == ("Find\nthe price.", ANSWER, 3)
    assert actions == ["click (10, 20)", 'button "Search" -> click [7] | FAILED']
    assert shots == [png(0), png(1), png(3)]
    result = json.loads((folder / "result.json").read_text())
    assert (result["task_id"], result["reference_length"]) == (folder.name, 4)
    ends = [(one["step"], one["action_status"]) for one in result["action_history"]]
    assert ends == [(0, None), (1, "FAILED"), (2, None)]
    assert result["action_history"][-1]["action"] == f"TASK_COMPLETE -> ANSWER: {' '.join(ANSWER.split())}"
    _, actions, _, shots, answer = read_as_online_mind2web(out / "2" / "BBC_News--3")
    assert (len(actions), len(shots), answer) == (2, 3, None)


def act(text):
    return CustomAction(name="act", arguments={"text": text})


def call(text, **arguments):
    return Action(name=ActionName.CALL, text=text, calls=(ToolCall(name="tool", arguments=arguments),))


@pytest.mark.parametrize(
    ("action", "is_answer"),
    [
        (act("ANSWER; [It costs 5\nEUR]"), True),
        (act("It costs 5 EUR2"), False),
        (act("click(2)"), False),
        (call("I say it.", answer="It costs 5 EUR"), True),
        (call("It costs 5 EUR, but I look again.", x=2), False),
        (Action(name=ActionName.TERMINATE), True),
        (Action(name=ActionName.CLICK, coordinate=(1, 2)), False),
        (None, True),
    ],
)
def test_a_last_step_is_the_answer_if_it_carries_it(action, is_answer):
    last = step(1, action=action, parse_error=None if action else ParseErrorKind.NO_TOOL_CALL)
    answered = SOLVED.model_copy(update={"stop": Stop.ANSWERED, "answer": "It costs 5  EUR"})
    one = trajectory(0, steps=(step(0), last), outcome=answered)
    assert one.answering == (last if is_answer else None)
    assert one.model_copy(update={"outcome": UNSOLVED}).answering is None


def test_the_answer_of_another_agent_is_no_fact_whatever_its_action_is_called(tmp_path):
    run = new_run(tmp_path / "run")
    steps = (step(0), step(1, action=act("ANSWER; 5 EUR")))
    for number, (stop, answer) in enumerate(product((Stop.ANSWERED, Stop.STEP_LIMIT), ("5 EUR", "Order 17"))):
        outcome = SOLVED.model_copy(update={"stop": stop, "answer": answer})
        fill(run, trajectory(number, steps=steps, outcome=outcome, task=TASK))
    exported(run, tmp_path / "out", format="online-mind2web")
    folders = sorted((tmp_path / "out").glob("*/BBC_News--3"))
    counts = [len(read_as_online_mind2web(folder)[1]) for folder in folders]
    assert counts == [1, 2, 2, 2], "the last step is left out only if it gives the answer"


def read_as_webvoyager(folder):
    """Return task, answer and screenshots as WebVoyager's `auto_eval.py` finds them; the answer is None for none."""
    messages = json.loads((folder / "interact_messages.json").read_text())
    task = re.search(r"Now given a task:(.+?)Please interact with", messages[1]["content"])[1].strip()
    names = [re.search(r"screenshot(\d+)\.png", file.name) for file in folder.iterdir()]
    shots = [folder / name[0] for name in sorted(filter(None, names), key=lambda name: int(name[1]))]
    if "Action: ANSWER" not in messages[-1]["content"]:
        return task, None, shots
    return task, re.search(r"ANSWER[; ]+\[?(.[^\]]*)\]?", messages[-1]["content"])[1].strip(), shots


def test_webvoyager_reads_the_task_the_whole_answer_and_the_screenshots(run, tmp_path):
    out = tmp_path / "out"
    exported(run, out, format="webvoyager")
    assert list_folders(out) == ["1/taskBBC News--3", "1/task___x y", "2/taskBBC News--3"]
    task, answer, shots = read_as_webvoyager(out / "1" / "taskBBC News--3")
    assert (task, answer) == ("Find the price.", "It costs (about) 5 EUR")
    assert [shot.read_bytes() for shot in shots] == [png(n) for n in range(4)]
    assert read_as_webvoyager(out / "2" / "taskBBC News--3")[:2] == ("Find the price.", None)


@pytest.mark.parametrize(("name", "first"), [("online-mind2web", "*BBC*3/**/*0.png"), ("webvoyager", "*BBC*/*t1.png")])
def test_recoded_screenshots_are_png_again(run, tmp_path, name, first):
    recode(ScreenshotStore(run.screenshots), shot(0).sha256, webp(0))
    exported(run, tmp_path / "out", format=name)
    (file,) = (tmp_path / "out" / "1").glob(first)
    with Image.open(file) as image:
        assert (image.format, image.convert("L").getpixel((0, 0))) == ("PNG", 0)


def test_episodes_of_other_tasks_are_refused_by_webarena_verified(run, tmp_path):
    with pytest.raises(UsageError, match="webarena-verified"):
        exported(run, tmp_path / "out", format="webarena-verified")
    assert not (tmp_path / "out").exists()
