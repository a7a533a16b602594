"""AgentLab's result folders, from its classes' gzipped pickles to our records."""

import gzip
import os
import pickle

import pytest

from tests.imports.foreign import agentlab_episode, agentlab_step, pickled, thing
from tests.imports.test_pickled import Order
from webgym_cli.imports.agentlab import find, read
from webgym_cli.imports.agentlab_actions import convert_action
from webgym_cli.imports.pickle_stubs import PickleRefused
from webgym_cli.imports.source import SkipReason
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.trajectory import ParseErrorKind


def only(folder, images=None):
    (found,) = read(folder, images)
    return found


def test_an_episode_becomes_ours(tmp_path):
    folder = agentlab_episode(tmp_path, 'click("a1")', 'send_msg_to_user("42")')
    found = only(folder)
    assert (found.task.id, found.task.environment, found.task.instruction) == ("webarena.12", "webarena", "Find it.")
    assert (found.task.start_url, found.seed, found.policy) == ("https://shop.example/0", 3, "Generic-gpt")
    first, last = found.steps
    assert first.action == Action(name=ActionName.CLICK, coordinate=(500, 500))
    assert first.response.startswith('<action>click("a1")</action>\n<tool_call>')
    assert (first.picture, first.title) == (folder / "screenshot_step_0.png", "Shop 0")
    assert (first.policy_seconds, first.environment_seconds) == (2.5, 0.5)
    assert last.action == Action(name=ActionName.ANSWER, text="42")
    assert (found.outcome.reward, found.outcome.stop, found.outcome.answer) == (1.0, Stop.ANSWERED, "42")
    assert [(score.source, score.value) for score in found.outcome.scores] == [("environment", 1.0)]
    assert (found.started_at, found.seconds, found.lost_steps) == ("1970-01-01T00:16:40.000+00:00", 3.0, 1)


def test_a_miniwob_task_is_ours_by_name(tmp_path):
    found = only(agentlab_episode(tmp_path, 'click("a1")', name="miniwob.click-test"))
    assert (found.task.id, found.task.environment, found.task.start_url) == (
        "click-test",
        "miniwob",
        "click-test.html",
    )


def at(name, **fields):
    """Return an action on the element a1, whose middle is the picture's."""
    return Action(name=name, coordinate=(500, 500), **fields)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("click('a1')", Action(name=ActionName.CLICK, coordinate=(500, 500))),
        ("# a comment\nclick(bid='a1', button='left')", Action(name=ActionName.CLICK, coordinate=(500, 500))),
        ("click('a1', 'right')", at("click", button="right")),
        ("click('a1', 'left', ['ControlOrMeta', 'Shift'])", at("click", modifiers=("Control", "Shift"))),
        ("click('a1', 'wrong')", None),
        ("dblclick('a1', button='middle')", at("click", clicks=2, button="middle")),
        ("hover('a1')", at("hover")),
        ("hover('b2')", None),
        ("clear('a1')", at("type", text="")),
        ("select_option('a1', 'Rome')", at("select_option", text="Rome")),
        ("select_option('a1', ['Rome'])", at("select_option", text="Rome")),
        ("select_option('a1', ['Rome', 'Oslo'])", None),
        ("upload_file('a1', 'cv.pdf')", at("upload_file", text="cv.pdf")),
        ("mouse_upload_file(32, 24, 'cv.pdf')", at("upload_file", text="cv.pdf")),
        ("drag_and_drop('a1', 'a1')", at("drag", to_coordinate=(500, 500))),
        ("drag_and_drop('a1', 'nowhere')", None),
        ("mouse_drag_and_drop(32, 24, 64, 48)", at("drag", to_coordinate=(1000, 1000))),
        ("mouse_move(32, 24)", at("hover")),
        ("mouse_dblclick(32, 24)", at("click", clicks=2)),
        ("keyboard_press('Control+a')", Action(name=ActionName.KEY, keys=("Control+a",))),
        ("keyboard_type('x')", Action(name=ActionName.TYPE, here=True, append=True, text="x")),
        ("keyboard_insert_text('x')", Action(name=ActionName.TYPE, here=True, append=True, text="x")),
        ("go_forward()", Action(name=ActionName.GO_FORWARD)),
        ("new_tab()", Action(name=ActionName.NEW_TAB)),
        ("tab_close()", Action(name=ActionName.CLOSE_TAB)),
        ("tab_focus(1)", Action(name=ActionName.SWITCH_TAB, tab=1)),
        ("focus('a1')", None),
        ("click('nowhere')", None),
        ("fill('a1', 'red')", Action(name=ActionName.TYPE, coordinate=(500, 500), text="red")),
        ("fill('a1', 3)", None),
        ("scroll(0, 200)", Action(name=ActionName.SCROLL, direction="down", amount=4166.7)),
        ("scroll(0, -1.5)", Action(name=ActionName.SCROLL, direction="up", amount=31.2)),
        ("scroll(100, 0)", Action(name=ActionName.SCROLL, direction="right", amount=1562.5)),
        ("scroll(100, 100)", None),
        ("noop()", Action(name=ActionName.WAIT, seconds=1)),
        ("noop(90000)", Action(name=ActionName.WAIT, seconds=60)),
        ("goto('https://a.example')", Action(name=ActionName.NAVIGATE, url="https://a.example")),
        ("go_back()", Action(name=ActionName.GO_BACK)),
        ("mouse_click(16, 36)", Action(name=ActionName.CLICK, coordinate=(250, 750))),
        ("mouse_click(16, 36, 'right')", Action(name=ActionName.CLICK, coordinate=(250, 750), button="right")),
        ("mouse_click(160, 36)", None),
        ("report_infeasible(reason='no shop')", Action(name=ActionName.TERMINATE, text="no shop")),
        ("press('a1', 'Enter')", at("key", keys=("Enter",))),
        ("press('a1')", None),
        ("click('a1')\nclick('a1')", None),
        ("__import__('os').system('true')", None),
        ("click(open('x', 'w'))", None),
        ("click(*['a1'])", None),
        ("click(**{'bid': 'a1'})", None),
        ("not python", None),
        ("(" * 5000, None),
        ("", None),
    ],
)
def test_actions_in_our_words(text, action, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    elements = {"a1": {"bbox": [16, 12, 32, 24]}, "nowhere": {"bbox": None}}
    assert convert_action(text, elements, 64, 48) == action
    assert list(tmp_path.iterdir()) == []


def test_an_action_that_is_not_ours_stays_in_their_words(tmp_path):
    (step,) = only(agentlab_episode(tmp_path, 'focus("a1")')).steps
    assert (step.action, step.parse_error) == (None, ParseErrorKind.NO_TOOL_CALL)
    assert step.response == '<action>focus("a1")</action>'


def test_more_than_basic_actions_have_a_prompt_of_their_own(tmp_path):
    plain = only(agentlab_episode(tmp_path / "a", 'click("a1")', 'send_msg_to_user("42")'))
    more = only(agentlab_episode(tmp_path / "b", 'press("a1", "Enter")', 'report_infeasible("no shop")'))
    assert [found.prompt.version for found in (plain, more)] == ["vanilla", "full_vanilla"]
    first, last = more.steps
    assert first.action == at("key", keys=("Enter",))
    assert '"action": "key"' in first.response
    assert (last.action.name, more.outcome.stop, more.outcome.answer) == ("terminate", Stop.ANSWERED, "N/A")


def test_an_error_is_a_failure_and_no_reward_of_0(tmp_path):
    broken = {"err_msg": "Exception uncaught by agent or environment", "cum_reward": 0, "terminated": False}
    found = only(agentlab_episode(tmp_path, "noop()", summary=broken))
    assert (found.outcome.failure, found.outcome.reward) == (FailureKind.ENVIRONMENT_ERROR, None)


def test_a_reward_that_is_not_finite_is_a_failure(tmp_path):
    found = only(agentlab_episode(tmp_path, "noop()", summary={"cum_reward": float("nan"), "terminated": True}))
    assert (found.outcome.failure, found.outcome.reward) == (FailureKind.ENVIRONMENT_ERROR, None)


def test_a_truncated_episode_met_its_limit(tmp_path):
    found = only(
        agentlab_episode(tmp_path, "noop()", summary={"cum_reward": 0, "terminated": False, "truncated": True})
    )
    assert (found.outcome.reward, found.outcome.stop) == (0.0, Stop.STEP_LIMIT)


def test_an_unfinished_episode_is_left_for_later(tmp_path):
    folder = agentlab_episode(tmp_path, "noop()", summary={"terminated": False})
    assert only(folder).why is SkipReason.UNFINISHED
    (folder / "summary_info.json").unlink()
    assert only(folder).why is SkipReason.UNFINISHED


def test_the_goal_may_lie_beside_the_steps(tmp_path):
    folder = agentlab_episode(tmp_path, "noop()", goal="")
    assert only(folder).why is SkipReason.NOT_UNDERSTOOD
    goal = [{"type": "text", "text": "Buy it"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    (folder / "goal_object.pkl.gz").write_bytes(gzip.compress(pickled(goal, protocol=4)))
    assert only(folder).task.instruction == "Buy it"


def test_a_picture_within_the_step_is_taken(tmp_path):
    folder = agentlab_episode(tmp_path, "mouse_click(2, 1)", pictures=False)
    assert only(folder).why is SkipReason.SCREENSHOT_MISSING
    pixels = [[[1, 2, 3]] * 4] * 2
    inside = agentlab_step(0, "mouse_click(2, 1)", screenshot={"array": pixels, "dtype": "uint8"})
    (folder / "step_0.pkl.gz").write_bytes(gzip.compress(pickled(inside, protocol=4)))
    (step,) = only(folder).steps
    assert step.picture.shape == (2, 4, 3)
    assert step.action == Action(name=ActionName.CLICK, coordinate=(500, 500))


def test_words_without_a_chat_are_thought_and_action(tmp_path):
    folder = agentlab_episode(tmp_path, "noop()")
    record = agentlab_step(0, "noop()")
    record["fields"]["agent_info"] = {"think": "Wait.", "chat_messages": None}
    (folder / "step_0.pkl.gz").write_bytes(gzip.compress(pickled(record, protocol=4)))
    assert only(folder).steps[0].response.startswith("Wait.\nnoop()\n<tool_call>")


def test_the_folder_names_the_task_where_the_arguments_are_refused(tmp_path):
    folder = agentlab_episode(tmp_path, "noop()", name="miniwob.click-test", seed=9)
    (folder / "exp_args.pkl").write_bytes(pickled(thing("my_agents.Mine", x=1), protocol=4))
    found = only(folder)
    assert (found.task.id, found.seed, found.policy) == ("click-test", 9, "agentlab")


def test_a_hostile_step_is_refused_by_name_and_runs_nothing(tmp_path):
    folder = agentlab_episode(tmp_path, "noop()")
    made = tmp_path / "made"
    attack = pickle.dumps(Order(os.system, f"touch {made}"))
    (folder / "step_0.pkl.gz").write_bytes(gzip.compress(attack))
    with pytest.raises(PickleRefused, match=r"step_0\.pkl\.gz: it asks for 'posix\.system'"):
        only(folder)
    assert not made.exists()


def test_a_missing_step_is_not_papered_over(tmp_path):
    folder = agentlab_episode(tmp_path, "noop()", "noop()")
    (folder / "step_1.pkl.gz").unlink()
    assert "a step is missing" in only(folder).detail


def test_a_damaged_summary_is_named(tmp_path):
    folder = agentlab_episode(tmp_path, "noop()")
    (folder / "summary_info.json").write_text("{")
    with pytest.raises(PickleRefused, match=r"summary_info\.json: can't be read"):
        only(folder)


def test_folders_are_found_at_any_depth(tmp_path):
    first = agentlab_episode(tmp_path / "study", "noop()")
    second = agentlab_episode(tmp_path / "study" / "deeper", "noop()", name="miniwob.click-test")
    assert find(tmp_path) == sorted([first, second])
    assert find(first) == [first]
    assert find(first / "step_0.pkl.gz") == []
