"""The data of a run's report as one JSON object; the page is rendered from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypedDict, cast

from webgym_cli.config.load import flat_values
from webgym_cli.config.model import Settings
from webgym_cli.config.model_defaults import resolve_model_defaults
from webgym_cli.records.series import DEMONSTRATIONS
from webgym_cli.records.stored_events import DatasetEvent, PhaseEvent, TrainingEvent
from webgym_cli.report.async_training import read_async_facts
from webgym_cli.report.charts import format_percent
from webgym_cli.report.success import SERIES, read_failures, read_points, read_verdicts
from webgym_cli.report.timing import compute_cost, measure_timing, read_timed_events
from webgym_cli.report.training_metrics import STEP_CURVES, find_warnings
from webgym_cli.store.checkpoints import policy_name, version
from webgym_cli.store.index.means import read_means
from webgym_cli.store.index.pass_at_k import compute_pass_rates
from webgym_cli.store.index.query import Index
from webgym_cli.store.index.selection import TrajectoryQuery
from webgym_cli.store.index.spending import read_spending
from webgym_cli.store.metrics import read_records
from webgym_cli.store.run import RunDir, saved_settings
from webgym_cli.store.training_logs import read_step_curves
from webgym_cli.util.files import read_optional_object
from webgym_cli.util.json_values import as_object

# Excludes experts, whose success is no evidence about a policy.
_POLICIES = TrajectoryQuery(expression=f"series <> '{DEMONSTRATIONS}'")
_COUNTS = """
SELECT count(*) AS trajectories, coalesce(sum(steps), 0)::BIGINT AS steps,
    strftime(min(started_at), '%Y-%m-%dT%H:%M:%SZ') AS first_started,
    strftime(max(started_at), '%Y-%m-%dT%H:%M:%SZ') AS last_started,
    (SELECT count(*) FROM damage) AS damaged_lines
FROM trajectories
"""


class RunIdentity(TypedDict):
    """Identity of a run."""

    run: str
    policy_version: int
    policy: str
    base_model: str
    provenance: dict[str, Any]
    """Who made it with which versions."""


class BufferCounts(TypedDict):
    """Counts of the run's buffer."""

    trajectories: int
    steps: int
    first_started: str | None
    last_started: str | None
    damaged_lines: int


class ReportFacts(RunIdentity, BufferCounts):
    """The data of a run's report: the input of the HTML page, and the output of `--json`."""

    points: list[dict[str, Any]]
    """Success by series, iteration and band (`read_points`)."""
    means: list[dict[str, Any]]
    """Of rewards, extras, steps and calls by tool: `key` is the series."""
    pass_at_k: dict[str, dict[str, Any]]
    """By `<split> <iteration>`."""
    failures: dict[str, dict[str, Any]]
    verdicts: list[dict[str, Any]]
    timing: dict[str, Any]
    cost: dict[str, Any]
    spent: dict[str, Any]
    """Tokens and their cost: of policy, judge and generator, by step, episode and success."""
    datasets: list[DatasetEvent]
    samples_by_iteration: dict[str, int]
    trainings: list[TrainingEvent]
    optimizer_steps: dict[str, list[dict[str, Any]]]
    """Means of the trainers' logs over the optimizer steps, by metric."""
    warnings: list[str]
    """Messages about signs of a collapsing policy."""
    asynchronous: dict[str, list[dict[str, Any]]]
    phases: list[PhaseEvent]
    settings: dict[str, dict[str, Any]]
    """`value` and `default` of those that differ from their defaults, by dotted key."""


def gather_facts(run: RunDir, index: Index, gpus: int, price: float | None) -> ReportFacts:
    """Collect the facts. `gpus`: number of GPUs of the run; `price`: price of one GPU hour. Raises `StoreError`."""
    settings, events = saved_settings(run), read_timed_events(run)
    times = measure_timing(events)
    usual = flat_values(resolve_model_defaults(Settings()))
    points = read_points(index)
    trainings = list(read_records(run, TrainingEvent))
    return {
        **describe_run(run, settings),
        **cast("BufferCounts", index.one(_COUNTS)),
        "points": points,
        # In the order of `points`: test was blue in one chart and orange in the next.
        "means": sorted(read_means(index, "series"), key=lambda mean: (*SERIES, mean["key"]).index(mean["key"])),
        "pass_at_k": compute_pass_rates(index, _POLICIES),
        "failures": read_failures(index),
        "verdicts": read_verdicts(index),
        "timing": times,
        "cost": compute_cost(times, gpus, price),
        "spent": read_spending(run, settings, index),
        "datasets": list(read_records(run, DatasetEvent)),
        "samples_by_iteration": _samples(run),
        "trainings": trainings,
        "optimizer_steps": read_step_curves(run, (name for *_, name in STEP_CURVES)),
        "warnings": [*find_warnings(trainings, points), *warn_repetition(index.one(_NEWEST))],
        "asynchronous": read_async_facts(run),
        "phases": list(read_records(run, PhaseEvent)),
        "settings": {
            key: {"value": value, "default": usual.get(key)}
            for key, value in flat_values(settings).items()
            if value != usual.get(key)
        },
    }


def describe_run(run: RunDir, settings: Settings) -> RunIdentity:
    """Return a run's identity: folder, policy, and the versions that created it. Raises `StoreError`."""
    return {
        "run": str(run.root),
        "policy_version": version(run),
        "policy": policy_name(run, settings),
        "base_model": settings.policy_config.base_model,
        "provenance": read_optional_object(run.provenance),
    }


def find_newest_test(points: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the policy's newest scored point over all bands, of the test split or else of the training split."""
    scored = [point for point in points if point["band"] is None and point["scored"]]
    policies = [point for point in scored if point["series"] in SERIES[:2]]
    return max(policies, key=lambda point: (point["series"] == "test", point["iteration"]), default=None)


def _samples(run: RunDir) -> dict[str, int]:
    """Return the number of steps per iteration in the newest dataset, as recorded by `prepare`; empty without one."""
    counts = as_object(read_optional_object(run.dataset / "dropped.json").get("samples_by_iteration"))
    return {key: count for key, count in counts.items() if isinstance(count, int)}


# Minimum number of steps for a warning; fewer are not informative.
_FEWEST = 50
_REPEATED = 0.5
_SAME = 0.9

# Repeated responses of the newest training iteration: `later` are the steps that are not the first of their episode,
# `repeated` those of them with the response of the step before, `commonest` those with the most frequent response.
_NEWEST = """
WITH newest AS (SELECT id, iteration, task_key FROM trajectories WHERE series = 'train'
    AND iteration = (SELECT max(iteration) FROM trajectories WHERE series = 'train')
), said AS (
    SELECT newest.iteration, task_key, response_digest,
        lag(response_digest) OVER (PARTITION BY trajectory ORDER BY step) AS before
    FROM steps JOIN newest ON steps.trajectory = newest.id AND steps.iteration = newest.iteration
    WHERE steps.split = 'train'
)
SELECT max(iteration) AS iteration, count(*) AS steps, count(DISTINCT task_key) AS tasks,
    count(before) AS later, count(*) FILTER (WHERE response_digest = before) AS repeated,
    (SELECT max(n) FROM (SELECT count(*) AS n FROM said GROUP BY response_digest)) AS commonest
FROM said
"""


def warn_repetition(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for each sign that the policy's responses have collapsed."""
    if facts["steps"] < _FEWEST:
        return
    if facts["later"] >= _FEWEST and (share := facts["repeated"] / facts["later"]) > _REPEATED:
        yield (
            f"In iteration {facts['iteration']} {format_percent(share)} of the responses repeat that of the step "
            "before: the policy is stuck; rollout.max_repeated_actions ends such episodes."
        )
    if facts["tasks"] > 1 and facts["commonest"] and (share := facts["commonest"] / facts["steps"]) > _SAME:
        yield (
            f"In iteration {facts['iteration']} {format_percent(share)} of the responses, over {facts['tasks']} tasks, "
            "are one and the same: the policy does not look at its page any more."
        )
