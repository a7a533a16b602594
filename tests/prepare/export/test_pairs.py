"""Pairs for DPO: which replies are held against each other, and how many."""

import pytest

from tests.prepare.buffer import fill
from tests.prepare.exported import exported
from tests.records.builders import CRASHED, SOLVED, UNSOLVED, png, shot, step, trajectory
from webgym_cli.agent.prompt import render_step
from webgym_cli.prepare.export.options import ExportObjective
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Observation, Outcome, ParseErrorKind, PromptSpec
from webgym_cli.store.buffer import append
from webgym_cli.store.index.selection import TrajectoryQuery
from webgym_cli.store.screenshots import ScreenshotStore


def went(number, *replies, **changes):
    """Return a trajectory that gave these replies; `!` begins one that is no action."""
    wrong = {"action": None, "parse_error": ParseErrorKind.NO_TOOL_CALL}
    how = [wrong if reply.startswith("!") else {} for reply in replies]
    steps = [step(index, response=reply, **how[index]) for index, reply in enumerate(replies)]
    return trajectory(number, steps=tuple(steps), **changes)


def pairs(run, *overrides, **options):
    """Return an export's pairs as (id, chosen, rejected)."""
    _, records = exported(run, None, *overrides, objective=ExportObjective.DPO, **options)
    names = [record["id"].rpartition("-")[2] for record in records]
    replies = [(record["chosen"]["value"], record["rejected"]["value"]) for record in records]
    return sorted((name, *pair) for name, pair in zip(names, replies, strict=True))


def test_replies_to_the_same_prompt_are_paired(run):
    good = went(0, "a", "b", "c")
    fill(run, good, went(1, "a", "b", "x", outcome=UNSOLVED), went(2, "y", "z", outcome=UNSOLVED))
    # the first replies differ between 0 and 2; 0 and 1 went the same way until their last steps
    assert pairs(run) == [("00000/0", "a", "y"), ("00000/2", "c", "x")]
    _, records = exported(run, objective=ExportObjective.DPO)
    deep = next(record for record in records if record["id"].endswith("/2"))
    prompt = render_step(good, 2)
    assert [turn["value"] for turn in deep["conversations"]] == [message.content for message in prompt.messages[1:]]
    assert len(deep["images"]) == 3


def test_what_had_left_the_window_separates_only_where_the_prompt_tells_of_it(run):
    """Both clicked the same element with other words: without a window only the deed is told, so the prompt is one."""
    spec = PromptSpec(history_window=0)
    fill(run, went(0, "a", "b", prompt=spec), went(1, "c", "d", outcome=UNSOLVED, prompt=spec))
    assert pairs(run) == [("00000/0", "a", "c"), ("00000/1", "b", "d")]


def test_thoughts_leave_the_prompt_so_other_thoughts_separate_nothing(run):
    spec = PromptSpec(thinking=True)
    fill(run, went(0, "So.</think>a", "Go.</think>b", prompt=spec))
    fill(run, went(1, "Oh.</think>a", "No.</think>x", outcome=UNSOLVED, prompt=spec))
    thoughts = [("00000/0", "So.</think>a", "Oh.</think>a"), ("00000/1", "Go.</think>b", "No.</think>x")]
    assert pairs(run) == [(name, f"<think>\n{one}", f"<think>\n{other}") for name, one, other in thoughts]


@pytest.mark.parametrize(
    "other",
    [
        {"outcome": CRASHED},
        {"outcome": Outcome(stop=Stop.ANSWERED)},
        {"outcome": SOLVED},
        {"outcome": UNSOLVED, "task": Task(id="click-test", start_url="http://b/")},
        {"outcome": UNSOLVED, "instruction": "Click the other button."},
        {"outcome": UNSOLVED, "split": Split.TEST},
    ],
    ids=["crashed", "unjudged", "solved", "other task", "other instruction", "other split"],
)
def test_only_a_failure_of_the_policy_on_the_same_task_is_rejected(run, other):
    fill(run, went(0, "a", "b"), went(1, "x", "y", **other))
    assert pairs(run) == []
    assert pairs(run, ids=[f"{other.get('split', 'train')}-0000-00001", "train-0000-00000"]) == []


def test_another_page_is_another_prompt(run):
    first = went(0, "a", "b")
    other = step(0, response="x", observation=Observation(url="http://a/", title="Page 0", screenshot=shot(9)))
    ScreenshotStore(run.screenshots).put(png(9))
    fill(run, first)
    result = went(1, "x", "y", outcome=UNSOLVED)
    append(run, result.model_copy(update={"steps": (other, result.steps[1])}))
    assert pairs(run) == []


def test_the_rejected_reply_may_be_no_action_but_the_chosen_one_must_be_fit(run):
    fill(run, went(0, "!a", "b"), went(1, "!x", "y", outcome=UNSOLVED))
    assert pairs(run) == []
    fill(run, went(2, "a", "b"), went(3, "<image>", "y", outcome=UNSOLVED))
    assert pairs(run) == [("00002/0", "a", "!x")]


def test_the_same_words_twice_are_one_pair(run):
    fill(run, *(went(number, "a", f"b{number}") for number in range(3)))
    fill(run, *(went(number, "x", f"y{number}", outcome=UNSOLVED) for number in range(3, 6)))
    (pair,) = pairs(run)
    assert pair[1:] == ("a", "x")


def test_a_task_has_so_many_pairs_and_the_seed_decides_which(run):
    for iteration, task in enumerate((Task(id="one"), Task(id="two"))):
        for number in range(6):
            outcome = UNSOLVED if number % 2 else SOLVED
            fill(run, went(number, f"r{number}", "e", iteration=iteration, task=task, outcome=outcome))
    every = pairs(run)
    assert len(every) == 2 * 3 * 3  # 3 successes against 3 failures, on the first page of 2 tasks
    few = pairs(run, max_pairs_per_task=4)
    assert len(few) == 8
    assert set(few) < set(every)
    assert few == pairs(run, max_pairs_per_task=4)
    assert few != pairs(run, "algorithm_config.seed=7", max_pairs_per_task=4)
    assert len(pairs(run, max_pairs_per_task=4, query=TrajectoryQuery(task="two"))) == 4
    assert pairs(run, query=TrajectoryQuery(task="three")) == []


def test_a_damaged_trajectory_is_named_and_its_pairs_are_left_out(run):
    fill(run, went(0, "a", "b"), went(1, "x", "y", outcome=UNSOLVED), went(2, "u", "v", outcome=UNSOLVED))
    assert len(pairs(run)) == 2
    part = run.part(Split.TRAIN, 0)
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(lines[0] + lines[1].replace(b'"schema":1', b'"schema":7', 1) + lines[2])
    tally, records = exported(run, objective=ExportObjective.DPO)
    assert [record["rejected"]["value"] for record in records] == ["u"]
    assert (tally.damaged, str(part) in tally.problems[0]) == (1, True)
