import asyncio
import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.builders import CRASHED, SOLVED, UNSOLVED, trajectory
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.statistics import wilson
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.records.trajectory import Outcome
from webgym_cli.rollout.monitor import Monitor
from webgym_cli.rollout.plan import PendingEpisode, RolloutPlan
from webgym_cli.rollout.stage_timer import RUNNING, EpisodeStage, Histogram, StageTimer, idle_timings, merge_timings

UNKNOWN = Outcome(stop=Stop.ANSWERED, answer="42")
BLOCKED = Outcome(failure=FailureKind.SITE_BLOCKED, failure_detail="captcha")
CANCELLED = Outcome(failure=FailureKind.CANCELLED)
DURATIONS = st.floats(min_value=1e-9, max_value=1e9)
# Largest relative error of a quantile: durations are rounded to two digits.
ERROR = 0.05


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


def planned(number, *, site="a.com", difficulty=1):
    task = Task(id=f"t{number}", environment="web", start_url=f"https://www.{site}/x", difficulty=difficulty)
    return Episode(id=f"train-0000-{number:05d}", split=Split.TRAIN, iteration=0, task=task, seed=number, max_steps=10)


def owed(number, attempt=0, **changes):
    return PendingEpisode(planned(number, **changes), attempt)


def planned_rollout(total=10, numbers=range(10), given_up=0):
    episodes = tuple(planned(number) for number in range(total))
    return RolloutPlan(Split.TRAIN, 0, "vllm", episodes, tuple(owed(number) for number in numbers), given_up)


def planned_episode(number, outcome=SOLVED, steps=2, **changes):
    return trajectory(number, outcome=outcome, steps=steps, task=planned(number, **changes).task)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def monitor(clock):
    return Monitor(planned_rollout(), 4, stages=StageTimer(clock))


# --- latencies


@given(st.lists(DURATIONS, min_size=1, max_size=200), st.floats(0, 1))
def test_a_quantile_is_off_by_no_more_than_is_said(values, share):
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    assert histogram.quantile(share) == pytest.approx(exact, rel=ERROR + 1e-3)
    assert histogram.to_json()["count"] == len(values)
    assert histogram.total == pytest.approx(sum(values))


@given(st.lists(DURATIONS, max_size=50), st.lists(DURATIONS, max_size=50))
def test_two_histograms_together_are_the_histogram_of_both(first, second):
    parts, whole = [Histogram(), Histogram()], Histogram()
    for part, values in zip(parts, (first, second), strict=True):
        for value in values:
            part.add(value)
            whole.add(value)
    parts[0].merge(pickle.loads(pickle.dumps(parts[1])))
    assert parts[0].counts == whole.counts


def test_a_histogram_stays_small_whatever_comes():
    histogram = Histogram()
    assert histogram.to_json() == {"now": 0, "count": 0, "p50": None, "p95": None, "total": 0.0}
    for number in range(100_000):
        histogram.add(number * 0.01)
    assert len(histogram.counts) < 400
    assert (histogram.quantile(0), histogram.quantile(1)) == (0.0, 1000.0)


# --- stages


def test_a_stage_is_timed_and_shown(monitor, clock):
    monitor.stages.begin(owed(1, attempt=2))
    clock.seconds += 1
    with monitor.stages.time("train-0000-00001", EpisodeStage.POLICY):
        clock.seconds += 2
        (episode,) = monitor.snapshot()["episodes"]
        assert monitor.snapshot()["stages"]["policy"]["now"] == 1
    monitor.stages.record_step("train-0000-00001", 1, 10, "https://www.a.com/b")
    assert (episode["stage"], episode["stage_seconds"], episode["age"]) == ("policy", 2.0, 3.0)
    (after,) = monitor.snapshot()["episodes"]
    assert after["id"] == "train-0000-00001.2"
    assert (after["task"], after["step"], after["max_steps"], after["url"]) == ("t1", 1, 10, "https://www.a.com/b")
    policy = monitor.snapshot()["stages"]["policy"]
    assert (policy["now"], policy["count"], policy["total"]) == (0, 1, 2.0)
    assert policy["p50"] == pytest.approx(2.0, rel=ERROR)


def test_a_stage_within_another_ends_in_it(monitor, clock):
    monitor.stages.begin(owed(1))
    with monitor.stages.time("train-0000-00001", EpisodeStage.ACT):
        clock.seconds += 1
        with monitor.stages.time("train-0000-00001", EpisodeStage.STORE):
            clock.seconds += 1
        (episode,) = monitor.snapshot()["episodes"]
    assert (episode["stage"], episode["stage_seconds"]) == ("act", 2.0)
    assert monitor.summary()["stages"]["act"]["total"] == 2.0
    assert monitor.snapshot()["episodes"][0]["stage"] == ""


async def test_a_stage_is_timed_when_it_is_cancelled_or_fails_or_its_episode_has_no_slot(monitor, clock):
    async def work():
        with monitor.stages.time("train-0000-00001", EpisodeStage.RESET):
            entered.set()
            await asyncio.Event().wait()

    monitor.stages.begin(owed(1))
    entered = asyncio.Event()
    task = asyncio.create_task(work())
    await entered.wait()
    clock.seconds += 5
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ZeroDivisionError), monitor.stages.time("train-0000-00001", EpisodeStage.RESET):
        raise ZeroDivisionError
    with monitor.stages.time("train-0000-00009", EpisodeStage.RESET):  # it has no slot
        clock.seconds += 1
    monitor.stages.record_step("train-0000-00009", 1, 10, "https://a.com")
    reset = monitor.snapshot()["stages"]["reset"]
    assert (reset["count"], reset["now"], reset["total"]) == (3, 0, 6.0)
    assert [episode["id"] for episode in monitor.snapshot()["episodes"]] == ["train-0000-00001"]


def test_the_oldest_episodes_are_told_first_and_not_all(clock):
    monitor = Monitor(planned_rollout(), 200, stages=StageTimer(clock))
    for number in range(RUNNING + 5):
        clock.seconds += 1
        monitor.stages.begin(owed(number))
    snapshot = monitor.snapshot()
    assert snapshot["running"] == RUNNING + 5
    assert [episode["id"][-3:] for episode in snapshot["episodes"]] == [f"{number:03}" for number in range(RUNNING)]


def test_an_address_that_can_not_be_written_is_mended(monitor):
    monitor.stages.begin(owed(1))
    monitor.stages.record_step("train-0000-00001", 1, 10, "https://a.com/\udcff" + "x" * 1000)
    (episode,) = monitor.snapshot()["episodes"]
    assert json.dumps(episode, ensure_ascii=False).encode()
    assert episode["url"].startswith("https://a.com/?xxx")
    assert len(episode["url"]) == 300


# --- trajectories


def test_outcomes_are_counted(monitor, clock):
    for number in range(4):
        monitor.stages.begin(owed(number))
    monitor.record_stored(planned_episode(0))
    monitor.record_stored(planned_episode(1, UNSOLVED))
    monitor.record_stored(planned_episode(2, CRASHED))
    event = monitor.record_stored(planned_episode(3, UNKNOWN, steps=5))
    clock.seconds += 60
    snapshot = monitor.snapshot()
    assert (event["done"], event["total"], event["bar"]) == (3, 10, "train 0")
    assert (snapshot["done"], snapshot["known"], snapshot["successes"], snapshot["unjudged"]) == (3, 2, 1, 1)
    assert (snapshot["success_rate"], snapshot["interval"]) == (0.5, [round(bound, 4) for bound in wilson(1, 2)])
    assert (snapshot["failures"], snapshot["episodes"]) == ({"browser_crashed": 1}, [])
    assert snapshot["eta"] == 7 / (3 / 60)
    summary = monitor.summary()
    assert (summary["collected"], summary["steps"], summary["steps_per_second"]) == (3, 11, round(11 / 60, 2))
    assert snapshot["steps_per_second"] == round(11 / 60, 2)


@pytest.mark.parametrize(("split", "solved", "scored"), [(Split.TEST, 1.25, 2), (Split.TRAIN, 5, 8)])
def test_repeats_of_a_test_task_count_once_in_the_live_rate(monitor, split, solved, scored):
    for repeat in range(4):
        for number, outcome in enumerate((SOLVED, SOLVED if not repeat else UNSOLVED)):
            one = planned_episode(number, outcome)
            monitor.record_stored(one.model_copy(update={"id": f"{number}-{repeat}", "split": split}))
    snapshot = monitor.snapshot()
    interval = [round(bound, 4) for bound in wilson(solved, scored)]
    assert (snapshot["success_rate"], snapshot["interval"], snapshot["known"]) == (solved / scored, interval, 8)


def test_a_judgement_settles_what_was_not_known(monitor):
    for number in range(4):
        monitor.record_stored(planned_episode(number, UNKNOWN))
    assert monitor.snapshot()["success_rate"] is None
    monitor.record_judged(planned_episode(0, SOLVED))
    monitor.record_judged(planned_episode(1, UNSOLVED))
    failed = Outcome(failure=FailureKind.JUDGE_FAILED, failure_detail="no JSON")
    assert monitor.record_judged(planned_episode(2, failed))["event"] == "judged"
    monitor.record_judged(planned_episode(3, BLOCKED))
    snapshot = monitor.snapshot()
    assert (snapshot["judged"], snapshot["unjudged"], snapshot["known"], snapshot["successes"]) == (4, 0, 2, 1)
    assert snapshot["failures"] == {"judge_failed": 1, "site_blocked": 1}
    assert (snapshot["done"], snapshot["collected"]) == (2, 2)  # two are owed again
    assert monitor.summary()["judged"] == 4


def test_the_judges_tail_is_what_follows_the_last_episode(monitor, clock):
    clock.seconds += 5
    monitor.record_stored(planned_episode(0, UNKNOWN))
    clock.seconds += 8
    assert monitor.summary()["judge_tail_seconds"] == 0  # nothing was judged: something else took that time
    monitor.record_judged(planned_episode(0, SOLVED))
    assert (monitor.summary()["judge_tail_seconds"], monitor.summary()["seconds"]) == (8, 13)
    monitor.record_stored(planned_episode(1))
    assert monitor.summary()["judge_tail_seconds"] == 0


def test_a_judgement_that_failed_takes_an_earlier_command_s_episode_back(clock):
    monitor = Monitor(planned_rollout(numbers=range(6, 10)), 4, stages=StageTimer(clock))  # 0 to 5 are stored
    assert monitor.snapshot()["done"] == 6
    monitor.record_judged(planned_episode(0, BLOCKED))
    monitor.record_judged(planned_episode(1, SOLVED))
    snapshot = monitor.snapshot()
    assert (snapshot["done"], snapshot["collected"], snapshot["known"]) == (5, 0, 1)


def test_skipped_episodes_are_not_waited_for(monitor, clock):
    monitor.record_stored(planned_episode(0))
    monitor.skip_reasons["b.com is on the blocklist"] += 1
    clock.seconds += 10
    snapshot = monitor.snapshot()
    assert (snapshot["skipped"], snapshot["eta"]) == (1, pytest.approx(8 * 10))
    summary = monitor.summary()
    assert (summary["skipped"], summary["skip_reasons"]) == (1, {"b.com is on the blocklist": 1})


def test_the_eta_is_zero_at_the_end_and_unknown_at_the_start_and_what_is_cut_is_counted(clock):
    monitor = Monitor(planned_rollout(2, range(2)), 1, stages=StageTimer(clock))
    assert monitor.snapshot()["eta"] is None
    clock.seconds += 5
    monitor.record_stored(planned_episode(0))
    monitor.record_stored(planned_episode(1, CANCELLED))
    summary = monitor.summary()
    assert (summary["collected"], summary["cut"], summary["failures"]) == (1, 1, {"cancelled": 1})
    assert (monitor.snapshot()["cut"], monitor.snapshot()["eta"]) == (1, 5.0)
    monitor.record_stored(planned_episode(1))
    assert monitor.snapshot()["eta"] == 0.0


# --- snapshots


def test_the_timings_of_several_processes_add_up(clock):
    timers = [StageTimer(clock), StageTimer(clock)]
    for rank, timer in enumerate(timers):
        timer.begin(owed(6 + rank))
        with timer.time("", EpisodeStage.POLICY):
            clock.seconds += 1 + 99 * rank
    acting = timers[0].time("", EpisodeStage.ACT)
    acting.__enter__()
    merged = merge_timings([pickle.loads(pickle.dumps(timer.timings())) for timer in timers])
    assert merged["stages"]["act"]["now"] == 1
    policy = merged["stages"]["policy"]
    assert (policy["count"], policy["total"]) == (2, 101.0)
    assert policy["p50"] == pytest.approx(1, rel=ERROR + 1e-3)
    assert policy["p95"] == pytest.approx(100, rel=ERROR + 1e-3)
    assert (merged["running"], len(merged["episodes"])) == (2, 2)


def test_the_counters_of_servers_add_up_and_end(clock):
    counts = {"requests": 3, "failures": 1, "opened": 1, "seconds": 1.25, "outstanding": 2, "open": 1}
    result = [{"http://a": counts}, {"http://a": counts, "http://b": {**counts, "open": 0}}]
    timers = [StageTimer(clock, servers=lambda one=one: one) for one in result]
    merged = merge_timings([timer.timings() for timer in timers])["servers"]
    assert merged["http://a"] == {name: 2 * count for name, count in counts.items()}
    assert merged["http://b"] == {**counts, "open": 0}
    monitor = Monitor(planned_rollout(), 4, stages=timers[0])
    acting = monitor.stages.time("", EpisodeStage.ACT)
    acting.__enter__()
    ended = idle_timings(monitor.stages.timings())
    assert ended["servers"] == {"http://a": {**counts, "outstanding": 0, "open": 0}}
    assert merge_timings([ended])["stages"]["act"]["now"] == 0
    assert monitor.summary()["servers"] == result[0]
    assert "servers" not in Monitor(planned_rollout(), 4, stages=StageTimer(clock)).summary()
