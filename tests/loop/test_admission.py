"""Which groups begin and which make a batch: no step of a batch is ever older than `loop.max_staleness`."""

import heapq
import random

import pytest

from tests.records.builders import CRASHED, new_run, trajectory
from webgym_cli.config.load import load
from webgym_cli.errors import WebGymError
from webgym_cli.loop.admission import Admission, EpisodeGroup
from webgym_cli.loop.collector import EpisodeStream
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.sampling import PolicyVersion
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Generation, Outcome
from webgym_cli.rollout.plan import plan_rollout, write_plan
from webgym_cli.store.buffer import append, append_judgement
from webgym_cli.util.files import write_lines


def group(name: str, size: int = 2, *, version: int | None = None, rewards=(), greedy=()) -> EpisodeGroup:
    """A group of so many episodes; those with rewards are stored."""
    episodes = tuple(f"{name}.{number}" for number in range(size))
    pending = {episode: None for episode in episodes}
    episode_group = EpisodeGroup(name, 0, episodes, frozenset(episodes[number] for number in greedy), pending)
    if version is not None:
        episode_group.begin(version)
    for episode, reward in zip(episodes, rewards, strict=False):
        episode_group.pending.pop(episode)
        stored = trajectory(outcome=Outcome(reward=reward))
        episode_group.trajectories[episode] = stored.model_copy(update={"episode": episode, "id": episode})
    return episode_group


def admission(*groups: EpisodeGroup, batch_size=4, max_staleness=1, served=0, parent=0, **more) -> Admission:
    result = Admission(batch_size, max_staleness, parent, last=more.pop("last", 99), served=served, **more)
    result.groups = {one.id: one for one in groups}
    return result


def test_as_many_groups_begin_as_the_served_version_and_the_bound_allow():
    assert admission(group("a"), group("b"), group("c")).may_begin()  # 6 of (0 + 1 + 1) * 4
    assert not admission(group("a"), group("b"), group("c"), group("d")).may_begin()
    assert not admission(group("a"), group("b"), max_staleness=0).may_begin()
    assert not admission(group("a"), group("b"), served=1, parent=2).may_begin()  # 4 of (1 + 1 + 1 - 2) * 4
    assert not admission(group("a"), group("b"), last=1).may_begin()  # the loop ends after one batch


def test_a_batch_waits_for_the_groups_that_would_be_too_old_for_the_next():
    late = group("late", version=0, rewards=[1.0])
    quick = [group(name, version=1, rewards=[0.0, 1.0]) for name in "abc"]
    waiting = admission(late, *quick, served=1, parent=1)
    assert waiting.choose() is None
    late.record(stored_step(late, 1, version=1), judged=False)
    late.pending.clear()
    chosen = waiting.choose()
    assert [one.id for one in chosen.groups] == ["late", "a"]
    waiting.use_up(chosen)
    assert (waiting.parent, list(waiting.groups)) == (2, ["b", "c"])


def test_where_late_groups_are_dropped_the_batch_goes_on_without_them():
    late = group("late", version=0)
    quick = [group(name, version=1, rewards=[0.0, 1.0]) for name in "ab"]
    dropping = admission(late, *quick, served=1, parent=1, waits=False)
    assert [one.id for one in dropping.choose().groups] == ["a", "b"]
    dropping.use_up(dropping.choose())
    dropping.served = 2
    assert dropping.may_begin()  # it takes no place any more
    late.pending.clear()
    late.trajectories["late.0"] = trajectory()
    dropping.groups |= {name: group(name, version=2, rewards=[0.0, 1.0]) for name in "cd"}
    chosen = dropping.choose()
    assert ([one.id for one in chosen.stale], [one.id for one in chosen.groups]) == (["late"], ["c", "d"])
    assert chosen.select((0,), {}).episodes == 4


def test_groups_of_equal_rewards_are_left_out_and_others_begin_in_their_place():
    equal = group("equal", version=0, rewards=[1.0, 1.0])
    other = group("other", version=0, rewards=[0.0, 1.0])
    filtering = admission(equal, other, max_staleness=0, filters=True, max_batches=3)
    assert filtering.choose() is None
    assert filtering.may_begin()
    filtering.groups["more"] = group("more", version=0, rewards=[0.0, 1.0])
    chosen = filtering.choose()
    assert ([one.id for one in chosen.groups], [one.id for one in chosen.equal]) == (["other", "more"], ["equal"])
    assert admission(equal, other, max_staleness=0).choose().equal == ()


def test_no_more_groups_begin_than_the_limit_while_a_training_runs():
    """Equal groups took no place: a collector went on for as long as the trainer worked, twelve batches for one."""
    equal = [group(f"equal{number}", version=0, rewards=[1.0, 1.0]) for number in range(8)]
    busy = {"parent": 1, "filters": True, "max_batches": 4}  # the batch of version 0 is being trained on
    assert admission(*equal[:7], **busy).may_begin()  # 14 of (0 + 1 + 1 - 1) * 4 * 4
    assert not admission(*equal, **busy).may_begin()
    assert admission(*equal, **busy, max_staleness=2).may_begin()


@pytest.mark.parametrize("bound", [0, 1, 2])
@pytest.mark.parametrize("sizes", [(5, 5, 5, 1), (3, 7, 6), (4,) * 4])
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_groups_of_any_size_never_leave_collector_and_trainer_waiting_for_each_other(bound, sizes, share):
    """With groups that don't divide a batch, larger batches used up the places of the next one, and the loop hung."""
    random_, batches = random.Random(f"{bound}/{sizes}/{share}"), 30
    rules = admission(batch_size=16, max_staleness=bound, last=batches, filters=True, max_batches=8)
    number, training = 0, 0
    while rules.served < batches:
        rolled_out = 0
        while rules.may_begin() and (rolled_out < 3 or not training):  # all end before the trainer looks
            rewards = [0.0, float(random_.random() > share)] * 4
            size = sizes[number % len(sizes)]
            closed = group(f"g{number}", size, version=rules.served, rewards=rewards)
            rules.groups[closed.id] = closed
            number, rolled_out = number + 1, rolled_out + 1
        unconsumed = sum(len(one.episodes) for one in rules.groups.values())
        assert unconsumed < (bound + 1) * 16 * 8 + max(sizes)
        if training:
            training -= 1
            rules.served = rules.served if training else rules.parent
        else:
            chosen = rules.choose()
            assert chosen is not None, "nothing may begin, and there is no batch"
            assert not chosen.stale
            rules.use_up(chosen)
            training = random_.randrange(1, 6)


def test_so_many_equal_groups_that_the_limit_is_reached_make_a_smaller_batch_and_alone_end_the_loop():
    equal = [group(f"equal{number}", version=0, rewards=[1.0, 1.0]) for number in range(4)]
    few = group("few", version=0, rewards=[0.0, 1.0])
    limited = {"max_staleness": 0, "filters": True, "max_batches": 2}
    assert [one.id for one in admission(few, *equal[:3], **limited).choose().groups] == ["few"]
    assert admission(*equal[:3], **limited).choose() is None
    with pytest.raises(WebGymError, match="4 groups") as caught:
        admission(*equal, **limited).choose()
    assert "max_num_gen_batches=4" in caught.value.hint


def test_the_greedy_episode_is_compared_with_nothing():
    assert not group("a", 3, rewards=[1.0, 1.0, 0.0], greedy=[2]).has_gradient
    assert group("a", 3, rewards=[1.0, 0.0, 0.0], greedy=[2]).has_gradient
    assert group("a", 1, rewards=[1.0]).has_gradient


def stored_step(of: EpisodeGroup, number: int, *, version: int, attempt: int = 0, reward: float | None = 1.0):
    episode = trajectory(outcome=Outcome(reward=reward))
    generation = Generation(policy_version=PolicyVersion(number=version, digest="x"))
    step = episode.steps[0].model_copy(update={"generation": generation})
    facts = {"episode": of.episodes[number], "attempt": attempt, "steps": (step,), "id": f"{of.id}.{number}.{attempt}"}
    return episode.model_copy(update=facts)


def test_a_group_is_as_old_as_its_oldest_step_has_the_newest_attempts_and_is_closed_once_they_are_judged():
    episode_group = group("a")
    episode_group.begin(3)
    episode_group.record(stored_step(episode_group, 0, version=2), judged=False)
    episode_group.record(stored_step(episode_group, 0, version=4, attempt=1), judged=False)
    episode_group.record(stored_step(episode_group, 0, version=2), judged=False)
    assert (episode_group.oldest, episode_group.trajectories["a.0"].attempt) == (2, 1)
    crashed = stored_step(episode_group, 0, version=2, attempt=2).model_copy(update={"outcome": CRASHED})
    episode_group.record(crashed, judged=False)  # of no account: a check that was mended scored the one before it
    assert episode_group.trajectories["a.0"].attempt == 1
    judged = group("b", 1)  # closed once its episodes are judged
    judged.record(stored_step(judged, 0, version=0, reward=None), judged=True)
    judged.pending.clear()
    assert not judged.closed
    judged.record(stored_step(judged, 0, version=0), judged=True)
    assert judged.closed


@pytest.mark.parametrize("bound", [0, 1, 2, 3])
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_no_step_of_a_batch_is_older_than_the_bound(bound, waits, seed):
    """Episodes of very different lengths, on a few slots, beside a trainer of random speed: a simulation."""
    clock, random_ = 0.0, random.Random(f"{bound}/{waits}/{seed}")
    size, batches = 3, 12
    rules = admission(batch_size=12, max_staleness=bound, last=batches, waits=waits)
    events: list[tuple[float, int, str, object]] = []
    queue: list[tuple[EpisodeGroup, str]] = []
    free, number, parent, training, ages = 5, 0, 0, False, []
    while parent < batches:
        while free:
            if not queue and rules.may_begin():
                episode_group = group(f"g{number}", size, version=rules.served)
                rules.groups[episode_group.id] = episode_group
                queue += [(episode_group, episode) for episode in episode_group.episodes]
            if not queue:
                break
            free -= 1
            number += 1
            heapq.heappush(events, (clock + random_.paretovariate(0.9), number, "episode", queue.pop(0)))
        if not training and (chosen := rules.choose()):
            ages += [parent - one.oldest for one in chosen.groups]
            assert sum(len(one.episodes) for one in chosen.groups) == 12
            rules.use_up(chosen)
            training, number = True, number + 1
            heapq.heappush(events, (clock + random_.uniform(0, 20), number, "training", None))
        assert events, "nothing is under way: the two wait for each other"
        clock, _, kind, subject = heapq.heappop(events)
        if kind == "training":
            training, parent = False, parent + 1
            rules.served = parent
        else:
            free += 1
            episode_group, episode = subject
            del episode_group.pending[episode]
    assert max(ages) <= bound
    assert bound == 0 or max(ages) > 0


def test_what_a_judge_that_was_down_left_waits_in_its_group_for_the_next_judgement(tmp_path):
    """`webgym resume`, once the judge was back, trained on the batch without these episodes before it had asked."""
    tasks = tmp_path / "tasks.jsonl"
    write_lines(tasks, [{"id": "a", "instruction": "Find a lamp.", "start_url": "https://a.test/"}])
    given = (f"tasks.train={tasks}", "rollout.episodes=1", "rollout.policy=http://127.0.0.1:1/v1")
    settings = load(overrides=given)
    run = new_run(tmp_path / "run", settings)
    plan = plan_rollout(run, settings, Split.TRAIN, 0)
    write_plan(run, plan)
    (episode,) = plan.episodes
    stored = trajectory(id=episode.id, episode=episode.id, task=episode.task, outcome=Outcome())
    append(run, stored)
    facts = {"models": {}, "settings_digest": "d", "judged_at": stored.started_at, "failure": "judge_failed"}
    append_judgement(run, Split.TRAIN, 0, Judgement(trajectory=stored.id, unavailable=True, **facts))
    for is_judged in (True, False):
        stream = EpisodeStream(run, settings, "task", judged=is_judged, used=frozenset(), window=0)
        (begun,) = stream.open_stored()
        assert begun.closed is not is_judged
    begun.record(stored.model_copy(update={"outcome": Outcome(reward=1.0)}), judged=True)
    assert begun.closed
