"""The monitor of a rollout, made by hand, and what a terminal shows of it."""

import re

from tests.records.builders import SOLVED, UNSOLVED, trajectory
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.records.trajectory import Outcome
from webgym_cli.rollout.monitor import Monitor
from webgym_cli.rollout.plan import PendingEpisode, RolloutPlan
from webgym_cli.rollout.stage_timer import EpisodeStage

# Stages that have not ended: a discarded context manager ends its own.
STAGES = []


def rollout(running=30, failed=30, total=100, task="wiki-lookup", url="https://www.a.com/b"):
    """Return the monitor of a rollout at work."""
    stays = {"split": Split.TRAIN, "iteration": 0, "max_steps": 20}
    urls = [f"https://s{number % 7}.com/" for number in range(total)]
    tasks = [Task(id=f"{task}-{number}", environment="web", start_url=of) for number, of in enumerate(urls)]
    episodes = tuple(Episode(id=f"train-0000-{at:05d}", task=of, seed=at, **stays) for at, of in enumerate(tasks))
    owed = tuple(PendingEpisode(episode, 0) for episode in episodes)
    monitor = Monitor(RolloutPlan(Split.TRAIN, 0, "vllm", episodes, owed, 0), 64)
    for name in EpisodeStage:
        with monitor.stages.time("", name):
            pass
    for number in range(failed):
        kind = list(FailureKind)[number % len(FailureKind)]
        monitor.record_stored(trajectory(number, task=episodes[number].task, outcome=Outcome(failure=kind)))
    for number in range(10):
        outcome = UNSOLVED if number % 4 else SOLVED
        monitor.record_stored(trajectory(number, task=episodes[number].task, outcome=outcome))
    for one in owed[:running]:
        monitor.stages.begin(one)
        monitor.stages.record_step(one.episode.id, 3, 20, url)
        STAGES.append(monitor.stages.time(one.episode.id, EpisodeStage.POLICY))
        STAGES[-1].__enter__()
    monitor.queues |= {"owed": 548, "judge": 3}
    return monitor


def plain(lines):
    return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in lines]
