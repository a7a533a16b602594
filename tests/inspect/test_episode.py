"""One episode with what was said of it."""

import pytest

from tests.inspect.buffers import fill_run
from tests.records.builders import trajectory
from tests.records.test_judgement import ANSWERED, WEB, judgement
from tests.tables import each
from webgym_cli.errors import UsageError
from webgym_cli.inspect.page import list_verdicts, read_episodes, split_thought
from webgym_cli.records.judgement import Verdict
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import append_judgement
from webgym_cli.store.index.query import open_index

FIRST, SECOND = (f"2026-01-0{day}T00:00:00.000+00:00" for day in (1, 2))


@pytest.fixture
def run(tmp_path):
    return fill_run(tmp_path / "run", *(trajectory(number, outcome=ANSWERED, task=WEB) for number in range(3)))


def read_views(run, *names):
    with open_index(run) as index:
        return list(read_episodes(run, index, names))


def test_episodes_come_as_they_were_named_with_every_judgement_oldest_first(run):
    for at, success in ((SECOND, False), (FIRST, True)):
        verdict = judgement(trajectory="train-0000-00001", judged_at=at, success=success)
        append_judgement(run, Split.TRAIN, 0, verdict)
    second, first = read_views(run, "train-0000-00001", "train-0000-00000")
    assert [item.judged_at for item in second.judgements] == [FIRST, SECOND]
    assert second.trajectory.outcome.reward == 0.0  # the newest counts
    assert (first.trajectory.id, first.judgements) == ("train-0000-00000", ())


def test_the_json_is_the_record_with_its_judgements(run):
    append_judgement(run, Split.TRAIN, 0, judgement(trajectory="train-0000-00000"))
    (result,) = read_views(run, "train-0000-00000")
    record = result.to_json()
    (output,) = record.pop("judgements")
    assert Trajectory.model_validate(record) == result.trajectory
    assert output["trajectory"] == "train-0000-00000"


def test_an_unknown_id_is_refused_before_anything_is_read_and_the_nearest_named(run):
    run.part(Split.TRAIN, 0).with_name("verdicts-0.jsonl").touch()
    with open_index(run) as index:
        episode_views = read_episodes(run, index, ["train-0000-00000", "train-000-00002"])
        with pytest.raises(UsageError, match=r"'train-000-00002'; .*train-0000-00002"):
            next(episode_views)


def test_verdicts_come_in_the_order_of_asking():
    yes, no = Verdict(question="a", passed=True), Verdict(question="b", passed=False)
    verdict = judgement(claims=yes, facts=(yes, no), reference=None, success=False)
    assert list(list_verdicts(verdict)) == [("claims", yes), ("fact", yes), ("fact", no)]


@each(
    ("response", "has_action", "thinking", "parts"),
    [
        ("go", True, False, ("", "go")),
        ("<think>a</think>go", True, False, ("<think>a</think>", "go")),
        ("a</think>go", True, True, ("a</think>", "go")),
        ("never closed", False, True, ("never closed", "")),
        ("an imported reply without reasoning", True, True, ("", "an imported reply without reasoning")),
        ("never opened</think>go", True, False, ("", "never opened</think>go")),
    ],
)
def test_a_thought_is_told_from_what_was_said(response, has_action, thinking, parts):
    step = trajectory().steps[0]
    action = step.action if has_action else None
    step = step.model_copy(update={"response": response, "action": action})
    assert split_thought(step, thinking=thinking) == parts
