"""Plan of a task generation: failed tasks and requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from webgym_cli.config.model import Settings
from webgym_cli.curriculum.seeds import (
    FailedTask,
    SeedGroup,
    SeedRequest,
    generating_environments,
    group_by_site,
    group_name,
    has_new_tasks,
    plan_requests,
)
from webgym_cli.errors import MissingStageError, SettingsError
from webgym_cli.records.task import Split, Task
from webgym_cli.store.buffer import read
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir
from webgym_cli.tasks.source import open_tasks
from webgym_cli.util.optional import when
from webgym_cli.util.urls import site_of

_NUMBERS = ("token_ids", "logprobs")
_UNFILTERED = (
    "nobody tells how likely success is, so too easy and too hard tasks stay: -s orm.model=FOLDER names a model"
)
_ASKED = "SELECT DISTINCT site, instruction FROM trajectories WHERE list_contains(?, environment)"
_LAST_KNOWN = """(
    SELECT *, max(iteration) OVER (PARTITION BY task_key) AS newest
    FROM trajectories WHERE split = 'train' AND success IS NOT NULL AND iteration >= ?
)"""
# The latest failed episode with a known reward of each task; episodes before the given iteration
# don't count.
_FAILED = f"""id IN (
    SELECT min(id) FILTER (WHERE NOT success) FROM {_LAST_KNOWN}
    WHERE iteration = newest AND list_contains(?, environment) AND steps > 0
    GROUP BY task_key HAVING {{which}}
)"""
_NEVER_SOLVED, _SOLVED_SOMETIMES = "NOT bool_or(success)", "NOT bool_and(success)"


# Source of the success probability.
Critic = Literal["critic", "orm", "none"]


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """Plan of `webgym tasks generate`."""

    groups: tuple[SeedGroup, ...]
    rounds: tuple[tuple[SeedRequest, ...], ...]
    """Requests by round; each round has one request per site."""
    known: Mapping[str, tuple[str, ...]]
    """Instructions of the run's tasks, including test tasks, by site."""
    critic: Critic
    """Source of the policy's success probability."""
    notes: tuple[str, ...] = ()

    @property
    def seeds(self) -> int:
        """Number of failed tasks."""
        return sum(len(group.seeds) for group in self.groups)

    def to_json(self) -> dict[str, object]:
        """Return the output of `--dry-run`."""
        return {
            "event": "plan",
            "stage": "generate",
            "seeds": self.seeds,
            "seeds_by_site": {group.site: len(group.seeds) for group in self.groups},
            "requests": sum(map(len, self.rounds)),
            "known_tasks": sum(map(len, self.known.values())),
            "critic": self.critic,
            "notes": list(self.notes),
        }


def plan_generation(run: RunDir, settings: Settings, index: Index, *, has_critic: bool) -> GenerationPlan:
    """Return the plan. `has_critic`: whether the current policy has a critic of success.

    Raises `MissingStageError` without a failed task, `SettingsError` without the model that it needs.
    """
    how = settings.generate
    # Failures of an expert are not evidence about the policy.
    given = [settings.loop.demonstration_iterations, generating_environments()]
    # A policy that solves every task sometimes still has failed episodes to learn from.
    failed = list(index.places(_FAILED.format(which=_NEVER_SOLVED), given)) or list(
        index.places(_FAILED.format(which=_SOLVED_SOMETIMES), given)
    )
    episodes = (read(run, place, without=_NUMBERS) for place in failed)
    groups = group_by_site(
        FailedTask(one.task, one.instruction, next((step.observation for step in one.steps), None), one.prompt)
        for one in episodes
    )
    if not groups:
        raise _explain_no_seed(run, index)
    critic = _choose_critic(settings, has_critic=has_critic)
    unfiltered = how.critic == "auto" and critic == "none"
    return GenerationPlan(
        groups=groups,
        rounds=plan_requests(groups, how.requests_per_site, how.seeds_per_request, settings.seed),
        known={site: tuple(sorted(texts)) for site, texts in _collect_known(settings, groups, index).items()},
        critic=critic,
        notes=when(unfiltered, (_UNFILTERED,)),
    )


def _choose_critic(settings: Settings, *, has_critic: bool) -> Critic:
    """Return the source of the success probability. Raises `SettingsError` if the configured one is missing."""
    wanted, has_orm = settings.generate.critic, bool(settings.orm.model or settings.orm.base_url)
    if wanted == "critic" and not has_critic:
        raise SettingsError(
            "generate.critic: the current policy has no critic that tells success",
            hint="-s train.algorithm=webrl trains one; -s generate.critic=orm asks the outcome reward model",
        )
    if wanted == "orm" and not has_orm:
        raise SettingsError(
            "generate.critic: orm.base_url and orm.model are empty: nobody tells how likely success is",
            hint="-s orm.model=FOLDER, or -s generate.critic=none",
        )
    if wanted != "auto":
        return wanted
    if has_critic:
        return "critic"
    return "orm" if has_orm else "none"


def _collect_known(settings: Settings, groups: Sequence[SeedGroup], index: Index) -> dict[str, set[str]]:
    """Return the instructions of the run's tasks by site, whether they were run or not."""
    known = {group.site: {seed.instruction for seed in group.seeds} for group in groups}
    for task in _iter_tasks(settings, {seed.task.start_url for group in groups for seed in group.seeds}):
        if (site := group_name(task)) in known:
            known[site].add(task.instruction)
    tried: dict[str, set[str]] = {}  # by registrable domain, which several sites may share
    for row in index.rows(_ASKED, [generating_environments()]):
        tried.setdefault(row["site"], set()).add(row["instruction"])
    for group in groups:
        for domain in {seed.task.site or site_of(seed.task.start_url) or seed.task.environment for seed in group.seeds}:
            known[group.site] |= tried.get(domain, set())
    return known


def _iter_tasks(settings: Settings, urls: Iterable[str]) -> Iterator[Task]:
    """Yield the run's training and test tasks; only those of the seeds' registrable domains if all seeds have one."""
    sites = [site_of(url) for url in urls]
    for source in dict.fromkeys(filter(None, (settings.tasks.train, settings.tasks.test))):
        tasks = open_tasks(source)
        wanted = sorted(tasks.on_sites(sites)) if all(sites) else range(len(tasks))
        yield from (task for task in tasks.read(wanted) if has_new_tasks(task.environment))


def _explain_no_seed(run: RunDir, index: Index) -> MissingStageError:
    """Return the error that explains why there are no failed tasks."""
    rows = index.rows("SELECT environment, count(*) AS count FROM trajectories WHERE split = 'train' GROUP BY 1")
    counts = Counter({row["environment"]: row["count"] for row in rows})
    if not run.list_iterations(Split.TRAIN):
        return MissingStageError(f"{run.root}: no training trajectories", hint=f"webgym rollout {run.root}")
    if not any(map(has_new_tasks, counts)):
        names = ", ".join(sorted(counts))
        return MissingStageError(
            f"{run.root}: its tasks are of {names}; new ones can be made of tasks on the web only",
            hint="webgym rollout RUN -s tasks.train=FILE",
        )
    if any(index.rows("SELECT 1 FROM trajectories WHERE split = 'train' AND success", [])):
        return MissingStageError(
            f"{run.root}: no failed task: each that was scored is solved",
            hint="more tasks or episodes: -s tasks.train=FILE, -s rollout.episodes=N, -s curriculum.survey_episodes=N",
        )
    return MissingStageError(
        f"{run.root}: no failed task: no episode is scored yet",
        hint=f"webgym judge {run.root}, or webgym score {run.root}",
    )
