"""WebRL's and VisualAgentBench's results."""

import pytest

from tests.imports.foreign import PAGE, webrl_episode
from tests.tables import each
from webgym_cli.errors import UsageError
from webgym_cli.imports.calls import convert_call, convert_line
from webgym_cli.imports.source import SkipReason
from webgym_cli.imports.visualagentbench import VISUALAGENTBENCH, WEBRL, find_actions, find_traces, read
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import ParseErrorKind
from webgym_cli.records.webrl import WebRLActionName

CLICK = '# Element: the button\ndo(action="Click", element="3")'


def only(root, name="12", kind="actions", **options):
    suffix = "json" if kind == "actions" else "jsonl"
    (result,) = read(root / kind / f"{name}.{suffix}", None, **options)
    return result


def test_a_rollout_becomes_ours(tmp_path):
    trajectory = only(webrl_episode(tmp_path, "12", [CLICK, 'exit(message="done")']), kind="traces")
    assert (trajectory.task.id, trajectory.task.instruction) == ("12", "Buy it")
    assert trajectory.task.environment == "webarena"
    assert (trajectory.task.start_url, trajectory.split) == ("http://shop:7770/", Split.TEST)
    first, last = trajectory.steps
    assert first.action == Action(name=ActionName.CLICK, coordinate=(500, 500))
    assert first.response.startswith(f"{CLICK}\n<tool_call>")
    assert (first.url, last.url) == ("http://shop:7770/?a=1&b=2", "")
    assert first.picture == tmp_path / "screehshots" / "12" / "0.png"
    assert (trajectory.outcome.reward, trajectory.outcome.stop) == (1.0, Stop.ANSWERED)
    assert trajectory.outcome.answer == "done"
    assert [(score.source, score.value) for score in trajectory.outcome.scores] == [("environment", 1.0)]


@pytest.mark.parametrize("kind", ["traces", "actions"])
def test_for_a_policy_that_reads_texts_steps_have_pages_and_no_pictures(tmp_path, kind):
    search = 'do(action="Search", argument="red", element="4")'
    root = webrl_episode(tmp_path, "12", [search, CLICK, ""], score=0.0)
    trajectory = only(root, kind=kind, text=True)
    assert [(step.response, step.html, step.picture) for step in trajectory.steps] == [
        (search, PAGE, None),
        (CLICK, PAGE, None),
    ]
    assert trajectory.steps[0].action.name is WebRLActionName.SEARCH
    assert trajectory.steps[1].action.element_id == 3
    assert (trajectory.split, trajectory.outcome.stop) == (Split.TRAIN, Stop.STEP_LIMIT)


def test_without_traces_there_are_no_texts_and_what_was_never_scored_is_left_for_later(tmp_path):
    root = webrl_episode(tmp_path, "12", ["click [3] where [3]"], trace=False)
    assert only(root, text=True).why is SkipReason.NOT_UNDERSTOOD
    assert only(webrl_episode(tmp_path, "13", [CLICK], score=-0.1), "13").why is SkipReason.UNFINISHED


def test_the_label_of_the_reward_model_counts_where_there_is_one(tmp_path):
    trajectory = only(webrl_episode(tmp_path, "12", [CLICK], score=1.0, labelled=0), kind="fixed_traces")
    assert (trajectory.outcome.reward, [score.source for score in trajectory.outcome.scores]) == (0.0, ["orm"])


def test_a_stop_that_the_driver_forced_is_no_step(tmp_path):
    trajectory = only(webrl_episode(tmp_path, "12", [CLICK, ""], score=0.0))
    assert (len(trajectory.steps), trajectory.outcome.stop, trajectory.outcome.reward) == (1, Stop.STEP_LIMIT, 0.0)
    responses = ["click [3] where [3]", "stop [Early stop: Reach max steps 30]"]
    marks = only(webrl_episode(tmp_path, "13", responses, trace=False), "13")
    assert (len(marks.steps), marks.outcome.stop) == (1, Stop.STEP_LIMIT)


def test_actions_by_marks_keep_their_numbers(tmp_path):
    trajectory = only(webrl_episode(tmp_path, "12", ["click [3] where [3]", "stop [42]"], trace=False))
    assert trajectory.prompt.interaction_mode is InteractionMode.SET_OF_MARKS
    assert [step.action for step in trajectory.steps] == [
        Action(name=ActionName.CLICK, element_id=3),
        Action(name=ActionName.ANSWER, text="42"),
    ]
    assert (trajectory.task.instruction, trajectory.outcome.answer) == ("Buy it", "42")


def test_a_missing_picture_leaves_the_episode_out(tmp_path):
    root = webrl_episode(tmp_path, "12", [CLICK, CLICK])
    (root / "screehshots" / "12" / "1.png").unlink()
    skipped = only(root)
    assert (skipped.why, "1.png: not there" in skipped.detail) == (SkipReason.SCREENSHOT_MISSING, True)


def test_a_damaged_trace_is_named_with_its_line(tmp_path):
    root = webrl_episode(tmp_path, "12", [CLICK])
    with (root / "traces" / "12.jsonl").open("a") as file:
        file.write("{torn")
    with pytest.raises(UsageError, match=r"12\.jsonl:2"):
        only(root, kind="traces")


@each(
    ("response", "action"),
    [
        (
            'do(action="Type", argument="red", element="3")',
            Action(name=ActionName.TYPE, coordinate=(500, 500), text="red"),
        ),
        ('do(action="Click", element=3)', Action(name=ActionName.CLICK, coordinate=(500, 500))),
        ('do(action="Scroll Down")', Action(name=ActionName.SCROLL, direction="down")),
        ('do(action="Go Backward")', Action(name=ActionName.GO_BACK)),
        ("exit(message='4')", Action(name=ActionName.ANSWER, text="4")),
        *((f'do(action="Click", element="{element}")', None) for element in ("99", '3\\" .*')),
        *((f'do(action="{name}")', None) for name in ("Click", "Press Enter")),
        ('do(action="Hover", element="3")', None),
        ('do(action="Search", argument="red", element="3")', None),
        *((text, None) for text in ("quit()", "I will click.")),
    ],
)
def test_webrls_calls_in_our_words(response, action):
    assert convert_call(response, PAGE, 64, 48) == action


def test_an_element_without_a_readable_place_is_nowhere():
    for box in ("1,2,three,4", "600,2,3,4"):
        assert convert_call(CLICK, f'<a id="3" data-bbox="{box}">', 64, 48) is None


@each(
    ("line", "action"),
    [
        ("type [3] [a [b] c] where [3]", Action(name=ActionName.TYPE, element_id=3, text="a [b] c")),
        ("hover [3] where [3] is a link", Action(name=ActionName.HOVER, element_id=3)),
        ("scroll [up]", Action(name=ActionName.SCROLL, direction="up")),
        ("goto [http://a.example]", Action(name=ActionName.NAVIGATE, url="http://a.example")),
        ("go_back", Action(name=ActionName.GO_BACK)),
        ("click [99999999999999999999]", None),
        ("scroll [left]", None),
        ("press [Enter]", None),
        ("none", None),
    ],
)
def test_lines_in_our_words(line, action):
    assert convert_line(line) == action


def test_an_action_that_is_not_ours_stays_in_their_words(tmp_path):
    (step,) = only(webrl_episode(tmp_path, "12", ["press [Enter]"], trace=False)).steps
    assert (step.response, step.action, step.parse_error) == ("press [Enter]", None, ParseErrorKind.NO_TOOL_CALL)


def test_files_are_located_and_what_shows_the_choice_is_never_trained_on_by_default(tmp_path):
    webrl_episode(tmp_path / "a", "12", [CLICK], labelled=1)
    webrl_episode(tmp_path / "a", "13", [CLICK])
    assert find_actions(tmp_path) == [tmp_path / "a" / "actions" / f"{name}.json" for name in ("12", "13")]
    assert find_traces(tmp_path) == [tmp_path / "a" / name for name in ("fixed_traces/12.jsonl", "traces/13.jsonl")]
    assert WEBRL.split is VISUALAGENTBENCH.split is Split.TEST
    assert "green frame" in WEBRL.caution
