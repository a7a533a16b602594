"""The data of a run's report as one JSON object; the page is rendered from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypedDict, cast

from webgym_cli.config.load import flat_values
from webgym_cli.config.model import Settings
from webgym_cli.config.model_defaults import resolve_model_defaults
from webgym_cli.records.series import DEMONSTRATIONS
from webgym_cli.records.statistics import known_interval, ratio
from webgym_cli.records.stored_events import DatasetEvent, PhaseEvent, TrainingEvent
from webgym_cli.report.charts import format_percent
from webgym_cli.report.timing import compute_cost, measure_timing, read_timed_events
from webgym_cli.report.training_metrics import STEP_CURVES, find_warnings, read_async_facts
from webgym_cli.store.checkpoints import policy_name, version
from webgym_cli.store.index.query import Index
from webgym_cli.store.index.selection import TrajectoryQuery, compute_pass_rates, read_means
from webgym_cli.store.index.spending import read_spending
from webgym_cli.store.metrics import read_records, read_step_curves
from webgym_cli.store.run import RunDir, saved_settings
from webgym_cli.util.files import read_optional_object
from webgym_cli.util.json_values import as_object

# The run's own series in display order; those of other servers follow.
SERIES = ("test", "train", DEMONSTRATIONS)
# Success and steps of each iteration of a series, over all difficulty bands (a band of NULL) and in each. A case counts
# once, with the mean of its episodes: of the test split a task and seed, whose repeats are no independent trials
# (`rollout.test_repeats`); of the training split an episode. Steps are means over the trajectories that did not fail,
# seconds over all of them.
_POINTS = f"""
WITH cases AS (
    SELECT *, 1 / nullif(count(success) OVER (PARTITION BY series, iteration, task_key, seed,
        CASE WHEN split = 'train' THEN id END), 0) AS weight
    FROM trajectories
)
SELECT series, iteration, CASE WHEN grouping(band) = 0 THEN band END AS band, count(*) AS trajectories,
    count(success) AS scored, count(*) FILTER (WHERE success) AS successes, count(failure) AS failures,
    round(avg(steps) FILTER (WHERE failure IS NULL), 3) AS mean_steps,
    round(avg(steps) FILTER (WHERE success), 3) AS mean_steps_solved,
    round(avg(policy_seconds), 3) AS policy_seconds, round(avg(environment_seconds), 3) AS environment_seconds,
    coalesce(sum(weight) FILTER (WHERE success), 0) AS solved_cases,
    coalesce(sum(weight) FILTER (WHERE success IS NOT NULL), 0) AS scored_cases
FROM cases GROUP BY GROUPING SETS ((series, iteration), (series, iteration, band))
ORDER BY nullif(list_position({list(SERIES)}, series), 0) NULLS LAST, series, iteration, grouping(band) DESC,
    list_position(['easy', 'medium', 'hard'], band)
"""

_KINDS = """
SELECT failure AS kind, count(*) AS count
FROM trajectories WHERE failure IS NOT NULL GROUP BY failure ORDER BY count DESC, kind
"""

_STOPS = """
SELECT stop, count(*) AS count, count(*) FILTER (WHERE success) AS successes
FROM trajectories WHERE failure IS NULL GROUP BY stop ORDER BY count DESC, stop
"""

# The newest judgements of an iteration that are a judge's verdicts: `agreement` is the mean share of votes that went
# with the decision, `both` the number of trajectories that the environment scored too.
_JUDGED = """
SELECT split, iteration, count(*) AS judged, round(avg(agreement), 4) AS agreement,
    count(*) FILTER (WHERE agreement >= 1) AS unanimous, count(agreement) AS voted,
    count(environment_reward) AS both,
    count(*) FILTER (WHERE judged = (environment_reward >= success_threshold)) AS same,
    round(same / nullif("both", 0), 4) AS same_rate
FROM trajectories WHERE judged IS NOT NULL AND judged_by = 'judge'
GROUP BY split, iteration ORDER BY split = 'train', iteration
"""
# Excludes experts, whose success is no evidence about a policy.
_POLICIES = TrajectoryQuery(expression=f"series <> '{DEMONSTRATIONS}'")
_COUNTS = """
SELECT count(*) AS trajectories, coalesce(sum(steps), 0)::BIGINT AS steps,
    strftime(min(started_at), '%Y-%m-%dT%H:%M:%SZ') AS first_started,
    strftime(max(started_at), '%Y-%m-%dT%H:%M:%SZ') AS last_started,
    (SELECT count(*) FROM damage) AS damaged_lines
FROM trajectories
"""
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


def read_points(index: Index) -> list[dict[str, Any]]:
    """Return success and steps by series, iteration and band; a band of None is all of them. Raises `StoreError`.

    `success_rate` is `solved_cases` of `scored_cases`, None without a scored case; `interval` is Wilson's, 95 %.
    """
    points = list(index.rows(_POINTS))
    for row in points:
        solved, scored = row["solved_cases"], round(row["scored_cases"])
        row |= {"scored_cases": scored, "solved_cases": round(solved, 4)}
        row |= {"success_rate": ratio(solved, scored), "interval": known_interval(solved, scored)}
    return points


def read_failures(index: Index) -> dict[str, dict[str, Any]]:
    """Return the number of failures `by_kind`, and of the others by `stops`, the reason why they ended."""
    return {
        "by_kind": {row["kind"]: row["count"] for row in index.rows(_KINDS)},
        "stops": {
            str(row["stop"]): {"count": row["count"], "successes": row["successes"]} for row in index.rows(_STOPS)
        },
    }


class BufferCounts(TypedDict):
    """Counts of the run's buffer."""

    trajectories: int
    steps: int
    first_started: str | None
    last_started: str | None
    damaged_lines: int


class ReportFacts(BufferCounts):
    """The data of a run's report: the input of the HTML page, and the output of `--json`."""

    run: str
    policy_version: int
    policy: str
    base_model: str
    provenance: dict[str, Any]
    """Who made it with which versions."""
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
        "run": str(run.root),
        "policy_version": version(run),
        "policy": policy_name(run, settings),
        "base_model": settings.policy_config.base_model,
        "provenance": read_optional_object(run.provenance),
        **cast("BufferCounts", index.one(_COUNTS)),
        "points": points,
        # In the order of `points`: test was blue in one chart and orange in the next.
        "means": sorted(read_means(index, "series"), key=lambda mean: (*SERIES, mean["key"]).index(mean["key"])),
        "pass_at_k": compute_pass_rates(index, _POLICIES),
        "failures": read_failures(index),
        "verdicts": list(index.rows(_JUDGED)),
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


def find_newest_test(points: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the policy's newest scored point over all bands, of the test split or else of the training split.

    Without either: of a server's test episodes, as an evaluation of a URL has no others.
    """
    scored = [point for point in points if point["band"] is None and point["scored"]]
    own = [point for point in scored if point["series"] in SERIES[:2]]
    policies = own or [point for point in scored if point["series"].startswith("test of ")]
    return max(policies, key=lambda point: (point["series"] == "test", point["iteration"]), default=None)


def _samples(run: RunDir) -> dict[str, int]:
    """Return the number of steps per iteration in the newest dataset, as recorded by `prepare`; empty without one."""
    counts = as_object(read_optional_object(run.dataset / "dropped.json").get("samples_by_iteration"))
    return {key: count for key, count in counts.items() if isinstance(count, int)}


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
