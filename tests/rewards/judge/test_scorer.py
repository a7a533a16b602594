"""Judging stored trajectories again: what is stored, what is counted, and when it is hopeless."""

import asyncio
from unittest.mock import Mock

import pytest

from tests.records.builders import png, step
from tests.records.test_judgement import SCORED
from tests.rewards.cases import DOWN, GARBAGE, NO, YES, answered, judge_settings
from tests.rewards.scripted_judge import ScriptedReply
from webgym_cli.config.load import load
from webgym_cli.errors import WebGymError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Observation
from webgym_cli.rewards.engine import execute_scoring
from webgym_cli.rewards.judge.judge import Judge
from webgym_cli.rewards.judge.scorer import JudgeScorer
from webgym_cli.rewards.selection import ScoringQuery, ScoringSelection, plan_scoring
from webgym_cli.store.buffer import append, read_judgements, scan
from webgym_cli.store.index.query import open_index
from webgym_cli.store.index.spending import read_spending
from webgym_cli.store.metrics import Blocklist
from webgym_cli.store.screenshots import ScreenshotStore

WRONG = "It was painted by Rembrandt in 1632."
TRAIN = Split.TRAIN


@pytest.fixture
def run(run):
    for shade in range(3):
        ScreenshotStore(run.screenshots).put(png(shade))
    return run


@pytest.fixture
def judge_run(run, server):
    """Judge what the run holds, and return the summary with the events in `events`."""
    events = []

    async def work(selection=None, **settings):
        events.clear()
        judging = judge_settings(server, **settings)
        plan = plan_scoring(run, JudgeScorer(judging, run), ScoringQuery(selection=selection))
        return await execute_scoring(plan, run, JudgeScorer(judging, run), events.append)

    work.events = events
    return work


def fill(run, *trajectories):
    for trajectory in trajectories:
        append(run, trajectory)


def stored_verdicts(run):
    return {name: [one.success for one in judgements] for name, judgements in read_judgements(run, TRAIN, 0).items()}


async def test_each_verdict_is_stored_and_counted(run, judge_run, monkeypatch):
    judge = Mock(wraps=Judge)
    monkeypatch.setattr("webgym_cli.rewards.judge.scorer.Judge", judge)
    fill(run, answered(0), answered(1, answer=WRONG), answered(2, outcome=SCORED))
    summary = await judge_run()
    assert judge.call_count == 1  # one set of connections, which is closed
    assert stored_verdicts(run) == {"train-0000-00000": [True], "train-0000-00001": [False]}
    assert [trajectory.outcome.reward for trajectory in scan(run, TRAIN, 0)] == [1.0, 0.0, 0.0]
    known = {"judged": 2, "verdicts": 2, "successes": 1, "success_rate": 0.5, "judge_failed": 0, "site_blocked": 0}
    assert summary.items() >= known.items()
    assert summary["calls"] == 6 + 5  # blocking, two key points, claims, and both facts or the first that fails
    done = [(event["done"], event["total"], event["event"]) for event in judge_run.events]
    assert done == [(1, 2, "judgement"), (2, 2, "judgement")]
    assert "1 of 2 solved" in JudgeScorer.format_summary(summary)


async def test_the_same_again_asks_nothing(run, judge_run, server):
    fill(run, answered(0))
    await judge_run(ScoringSelection.ALL)
    count = len(server.requests)
    summary = await judge_run(ScoringSelection.ALL)
    assert (summary["judged"], len(server.requests), stored_verdicts(run)) == (0, count, {"train-0000-00000": [True]})


async def test_other_settings_judge_anew_and_agreement_is_told(run, judge_run, server):
    fill(run, answered(0), answered(1), answered(2, answer=WRONG), answered(3, outcome=SCORED))
    await judge_run()
    server.script(NO, job="fact")
    summary = await judge_run(ScoringSelection.ALL, check_claims=False, concurrency=1)
    assert stored_verdicts(run)["train-0000-00000"] == [True, False]
    assert summary["agreement_with_previous"] == {"both": 3, "same": 2, "rate": 0.6667}
    assert summary["agreement_with_environment"] == {"both": 1, "same": 1, "rate": 1.0}
    assert [trajectory.outcome.reward for trajectory in scan(run, TRAIN, 0)] == [0.0, 1.0, 0.0, 0.0]
    assert (
        "2 of 3 agree with the verdict before, 1 of 1 agree with the environment's score"
        in JudgeScorer.format_summary(summary)
    )


async def test_what_can_not_be_read_is_stored_and_owed_again(run, judge_run, server):
    fill(run, *(answered(number) for number in range(3)))
    server.script(GARBAGE, YES, job="fact")
    summary = await judge_run(concurrency=1)
    assert (summary["judge_failed"], summary["verdicts"], summary["success_rate"]) == (1, 2, 1.0)
    first = next(iter(scan(run, TRAIN, 0)))
    assert (first.outcome.success, first.outcome.failure) == (None, FailureKind.JUDGE_FAILED)
    summary = await judge_run()
    assert (summary["judged"], stored_verdicts(run)["train-0000-00000"]) == (1, [None, True])


async def test_a_judge_that_is_down_ends_it_and_what_was_judged_stays(run, judge_run, server):
    fill(run, *(answered(number) for number in range(20)))
    server.script(*[NO] * 2, *[DOWN] * 18, job="blocking")
    with pytest.raises(WebGymError, match=r"^8 .*500") as caught:
        await judge_run(concurrency=1)
    assert "judge.base_url" in caught.value.hint
    assert list(stored_verdicts(run).values()) == [[True]] * 2 + [[None]] * 8


async def test_a_few_that_all_fail_are_an_error_too(run, judge_run, server):
    fill(run, answered(0), answered(1))
    server.script(GARBAGE, GARBAGE, job="blocking")
    with pytest.raises(WebGymError, match=r"^2 .*: blocking: "):
        await judge_run()


async def test_episodes_without_a_screenshot_do_not_keep_the_others_from_the_judge(run, judge_run):
    unseen = (step(0, observation=Observation(url="http://museum.test/")),)
    fill(run, *(answered(number, steps=unseen) for number in range(9)), answered(9))
    for _ in range(2):  # the next command begins with them again
        summary = await judge_run(concurrency=1)
        assert (summary["judge_failed"], stored_verdicts(run)["train-0000-00009"]) == (9, [True])
    first = next(iter(scan(run, TRAIN, 0)))
    assert first.outcome.failure_detail == "there is no screenshot to judge by"


async def test_a_judge_that_is_down_takes_no_older_verdict_away(run, judge_run, server):
    fill(run, answered(0), answered(1))
    await judge_run()
    server.script(DOWN, DOWN, job="blocking")
    with pytest.raises(WebGymError, match="in a row can't be used"):
        await judge_run(ScoringSelection.ALL, votes=1, temperature=0.5)
    assert stored_verdicts(run) == {"train-0000-00000": [True, None], "train-0000-00001": [True, None]}
    assert [one.outcome.reward for one in scan(run, TRAIN, 0)] == [1.0, 1.0]
    with open_index(run) as index:
        assert index.one("SELECT sum(reward) AS reward FROM trajectories") == {"reward": 2.0}
        spent = read_spending(run, load(), index)
    assert spent["judge_calls"] == len(server.requests)
    assert (await judge_run(ScoringSelection.ALL, temperature=0.5))["judged"] == 2


async def test_no_more_trajectories_at_once_than_calls(run, judge_run, server):
    fill(run, *(answered(number) for number in range(5)))
    server.script(*[ScriptedReply(silent=True)] * 3, job="blocking")
    task = asyncio.create_task(judge_run(concurrency=3))
    await server.arrived(3)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(server.arrived(4), 0.3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_wrong_block_is_undone_by_another_judge(run, judge_run, server):
    fill(run, answered(0))
    server.script(YES, job="blocking")
    Blocklist(run, 12).add("http://example.com/", "train-0000-00000", "captcha")
    assert (await judge_run())["site_blocked"] == 1
    assert [trajectory.outcome.failure for trajectory in scan(run, TRAIN, 0)] == [FailureKind.SITE_BLOCKED]
    assert Blocklist(run, 12).sites() == {"example.com"}
    summary = await judge_run(ScoringSelection.ALL, max_blocking_images=5)
    assert (summary["site_blocked"], summary["verdicts"]) == (0, 1)
    assert [trajectory.outcome.failure for trajectory in scan(run, TRAIN, 0)] == [None]
    assert Blocklist(run, 12).sites() == frozenset()
