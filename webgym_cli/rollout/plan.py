"""Plan of a rollout: the iteration's seeded episodes minus the stored ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from webgym_cli.config.model import Settings
from webgym_cli.environments.registry import map_isolation
from webgym_cli.errors import StoreError
from webgym_cli.records.series import name_series
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.attempts import EpisodeAttempts
from webgym_cli.rollout.draw import EpisodeSampler
from webgym_cli.rollout.resources import name_policy
from webgym_cli.store.buffer import read_plan, scan
from webgym_cli.store.index.query import open_index
from webgym_cli.store.run import RunDir
from webgym_cli.tasks.source import TaskSet, hash_text, open_tasks
from webgym_cli.util.files import write_lines
from webgym_cli.util.optional import when
from webgym_cli.util.text import format_count
from webgym_cli.util.urls import site_of

_PASS_RATES = """
SELECT task, avg(success::INT) AS rate FROM trajectories
WHERE series = 'train' AND iteration < ? AND success IS NOT NULL
GROUP BY task, iteration QUALIFY row_number() OVER (PARTITION BY task ORDER BY iteration DESC) = 1
"""


@dataclass(frozen=True, slots=True)
class PendingEpisode:
    """Planned episode without a final trajectory, with the number of its next attempt."""

    episode: Episode
    attempt: int
    """Number of this attempt, from 0."""
    failures: int = 0
    """Earlier failed attempts that count (`FailureKind.counts_as_attempt`)."""

    @property
    def trajectory_id(self) -> str:
        """Id of this attempt's trajectory, unique among all attempts of all episodes."""
        return f"{self.episode.id}.{self.attempt}" if self.attempt else self.episode.id

    @property
    def sampling_name(self) -> str:
        """What the sampling seeds derive from: an attempt that was cut off is sampled again as it was."""
        return f"{self.episode.id}.{self.failures}" if self.failures else self.episode.id


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """Episodes of an iteration, and those still to run."""

    split: Split
    iteration: int
    policy: str
    """`vllm`, `oracle` or base URLs."""
    episodes: tuple[Episode, ...]
    """All episodes planned so far for this iteration and split."""
    owed: tuple[PendingEpisode, ...]
    given_up: int
    """Episodes that used up their attempts, or whose site blocked the browser."""
    blocked: int = 0
    """Episodes that wait until their site is off the blocklist."""
    unjudged: tuple[str, ...] = ()
    """Ids of completed trajectories that await a judgement."""
    damaged: tuple[str, ...] = ()
    """Stored lines that can't be read; their episodes are owed again."""
    notes: tuple[str, ...] = ()
    """Notes on the sampling for the user."""
    wanted: int = 0
    """Number of requested episodes; more are planned to replace groups without gradient."""
    policy_name: str = ""
    """Name of the acting policy in the trajectories."""
    max_attempts: int = 3
    """Failed attempts after which an episode is given up (`rollout.max_attempts`)."""
    sites: Mapping[str, str] = field(default_factory=dict)
    """Isolation mode of each exclusive resource (WebArena site) of the pending episodes (`webarena.*.isolation`)."""

    @property
    def done(self) -> int:
        """Number of episodes with a final trajectory."""
        return len(self.episodes) - len(self.owed) - self.given_up - self.blocked

    def list_tasks(self) -> list[Task]:
        """Return the distinct tasks of the pending episodes."""
        return [*{owed.episode.task.key: owed.episode.task for owed in self.owed}.values()]

    def is_by_policy(self, trajectory: Trajectory) -> bool:
        """Whether a trajectory's result is one of the acting policy, not an expert's or another server's."""
        return name_series(trajectory.policy, self.split) == name_series(self.policy_name, self.split)

    def counts(self, trajectory: Trajectory) -> bool:
        """Whether a trajectory can finish its episode: in training anybody's, in an evaluation only the policy's."""
        return self.split is Split.TRAIN or self.is_by_policy(trajectory)

    def count_given_up(self, stored: Iterable[Trajectory]) -> int:
        """Return the number of its episodes that may not be tried again, by all stored trajectories."""
        attempts = _count_attempts(self, stored)
        known = [attempts[episode.id] for episode in self.episodes]
        return sum(not one.rolled_out and not one.may_be_tried(self.max_attempts) for one in known)

    def extend(self, later: RolloutPlan) -> RolloutPlan:
        """Return the plan of this and a later iteration's episodes, with the later iteration's number."""
        return replace(
            later,
            episodes=self.episodes + later.episodes,
            owed=self.owed + later.owed,
            given_up=self.given_up + later.given_up,
            blocked=self.blocked + later.blocked,
            sites={**self.sites, **later.sites},
        )

    def to_json(self) -> dict[str, object]:
        """Return what `--dry-run` prints."""
        tasks = Counter(owed.episode.task.id for owed in self.owed)
        return {
            "event": "plan",
            "stage": "rollout",
            "split": self.split,
            "iteration": self.iteration,
            "policy": self.policy,
            "episodes": len(self.episodes),
            "done": self.done,
            "owed": len(self.owed),
            "given_up": self.given_up,
            "blocked": self.blocked,
            "unjudged": len(self.unjudged),
            "notes": list(self.notes),
            "sites": dict(self.sites),
            "owed_by_task": dict(sorted(tasks.items())),
        }


def plan_rollout(
    run: RunDir,
    settings: Settings,
    split: Split,
    iteration: int,
    episodes: int | None = None,
    policy: str | None = None,
    blocked: Collection[str] = (),
    *,
    again: bool = False,
) -> RolloutPlan:
    """Return the plan of an iteration. `episodes` beyond those that were planned before extend it, seeded alike.

    Of an evaluation, `episodes` are its tasks and seeds, each of which is run `rollout.test_repeats` times.
    `policy`: what `rollout.policy` takes; None: the setting's value. `blocked`: excluded sites (`example.com`): no
    training task of theirs is drawn, and none of their episodes is run. `again`: given-up episodes are tried again.
    """
    wanted = episodes or usual_episodes(run, settings, split, iteration)
    planned, notes = _draw_episodes(run, settings, split, iteration, wanted, blocked)
    acting = policy or settings.rollout.policy
    whole = RolloutPlan(
        split=split,
        iteration=iteration,
        policy=acting,
        policy_name=name_policy(run, settings, acting),
        episodes=planned,
        owed=(),
        given_up=0,
        notes=notes,
        wanted=wanted,
        max_attempts=settings.rollout.max_attempts,
    )
    return _without_stored(run, settings, whole, blocked, again=again)


def _draw_episodes(
    run: RunDir, settings: Settings, split: Split, iteration: int, wanted: int, blocked: Collection[str]
) -> tuple[tuple[Episode, ...], tuple[str, ...]]:
    """Return the planned episodes with those that are missing of the wanted ones, and notes on the sampling."""
    planned = read_plan(run, split, iteration)
    have = Counter(episode.repeat for episode in planned)
    repeats = range(settings.rollout.test_repeats if split is Split.TEST else 1)
    more = {repeat: wanted - have[repeat] for repeat in repeats if wanted > have[repeat]}
    # The task file is only read where episodes must be drawn: a finished plan outlives it.
    if not more:
        return planned, ()
    new = _has_new(run, split, iteration)
    tasks = _tasks(run, settings, split, iteration)
    rates = partial(_read_pass_rates, run, iteration)
    draw = EpisodeSampler.of(tasks, settings, split, iteration, new=new, rates=rates)
    if not draw.explains(planned):
        raise StoreError(
            f"{run.plan(split, iteration)}: its episodes don't follow from the tasks and settings any more",
            hint="restore the task file (tasks may be added before an iteration is planned), or start another run",
        )
    earlier, changed = ([], ()) if new else _read_earlier(run, settings, split, tasks, iteration)
    hidden = draw.hidden(blocked)
    for repeat, count in more.items():
        planned += draw.further(count, planned, earlier, hidden, repeat)
    return planned, (*changed, *draw.notes(hidden, planned))


def write_plan(run: RunDir, plan: RolloutPlan) -> None:
    """Write the plan, before its first episode."""
    path = run.plan(plan.split, plan.iteration)
    if read_plan(run, plan.split, plan.iteration) != plan.episodes:
        write_lines(path, (episode.model_dump(mode="json") for episode in plan.episodes))


def usual_episodes(run: RunDir, settings: Settings, split: Split, iteration: int) -> int:
    """Return the default number of episodes of an iteration; one group per task if tasks were generated for it."""
    if _has_new(run, split, iteration):
        return len(open_tasks(str(run.new_tasks(iteration)))) * settings.agent.group_size
    return settings.rollout.test_episodes if split is Split.TEST else settings.rollout.episodes


def _has_new(run: RunDir, split: Split, iteration: int) -> bool:
    """Whether tasks were generated for an iteration."""
    return split is Split.TRAIN and run.new_tasks(iteration).is_file()


def _read_earlier(
    run: RunDir, settings: Settings, split: Split, tasks: TaskSet, iteration: int
) -> tuple[list[Episode], tuple[str, ...]]:
    """Return the episodes of earlier iterations with the same tasks, and a note if the tasks changed after the last.

    With `tasks.no_repeats` an iteration continues after them; other tasks have other streams, which start anew.
    """
    earlier: list[Episode] = []
    continues = split is Split.TRAIN and settings.tasks.no_repeats
    for number in reversed(range(iteration)):
        planned = () if _has_new(run, split, number) else read_plan(run, split, number)
        if not EpisodeSampler.of(tasks, settings, split, number).has_same_tasks(planned):
            note = f"{tasks.source}: its tasks changed after iteration {number} was planned; it has {len(tasks)} now"
            if split is Split.TEST:
                note += ": evaluations before and after it are not of the same episodes"
            return earlier, when(not earlier, (note,))
        earlier += planned
        if planned and not continues:
            break
    return earlier, ()


def _read_pass_rates(run: RunDir, iteration: int) -> dict[int, float]:
    """Return each task's success rate in the newest earlier iteration that contains it, by hash of the task id."""
    if not iteration or not run.exists:
        return {}
    with open_index(run) as index:
        return {hash_text(row["task"]): row["rate"] for row in index.rows(_PASS_RATES, [iteration])}


def _tasks(run: RunDir, settings: Settings, split: Split, iteration: int) -> TaskSet:
    if _has_new(run, split, iteration):
        return open_tasks(str(run.new_tasks(iteration)))
    if split is Split.TRAIN:
        return open_tasks(settings.tasks.train)
    return open_tasks(settings.tasks.test or settings.tasks.train, encrypted=True)


def _count_attempts(plan: RolloutPlan, trajectories: Iterable[Trajectory]) -> defaultdict[str, EpisodeAttempts]:
    """Return the stored attempts by episode id."""
    stored = defaultdict[str, EpisodeAttempts](EpisodeAttempts)
    for trajectory in trajectories:
        stored[trajectory.episode].add(trajectory, counts=plan.counts(trajectory))
    return stored


def again_command(split: Split, run: object = "RUN") -> str:
    """Return the command that tries the episodes of a split again that are given up."""
    return f"webgym rollout {run}{when(split == Split.TEST, ' --split test')} --again given-up"


def _without_stored(
    run: RunDir, settings: Settings, plan: RolloutPlan, blocked: Collection[str], *, again: bool
) -> RolloutPlan:
    """Return the plan with its pending episodes: those that are not stored and may be run."""
    damage = list[str]()
    stored = _count_attempts(plan, scan(run, plan.split, plan.iteration, damage))
    open_ = [episode for episode in plan.episodes if not stored[episode.id].rolled_out]
    limit = settings.rollout.max_attempts
    if again:
        for episode in open_:
            stored[episode.id].allow(limit)
    tried = [episode for episode in open_ if stored[episode.id].may_be_tried(limit)]
    owed = [episode for episode in tried if not blocked or site_of(episode.task.start_url) not in blocked]
    given_up, notes = len(open_) - len(tried), plan.notes
    if given_up:
        command = again_command(plan.split, run.root)
        notes = (*notes, f"{format_count(given_up, 'episode')} given up; `{command}` tries them again")
    return replace(
        plan,
        owed=tuple(PendingEpisode(episode, stored[episode.id].next, stored[episode.id].failures) for episode in owed),
        given_up=given_up,
        notes=notes,
        blocked=len(tried) - len(owed),
        unjudged=tuple(attempts.newest for attempts in stored.values() if attempts.unjudged),
        damaged=tuple(damage),
        sites=map_isolation(settings, (episode.task for episode in owed)),
    )
