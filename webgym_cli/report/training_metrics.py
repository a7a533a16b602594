"""Metrics of trainings: curves, and warnings of a policy collapse; of asynchronous ones staleness, waits and drops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from webgym_cli.records.series import name_series
from webgym_cli.records.statistics import difference, mean
from webgym_cli.records.stored_events import BatchEvent, TrainingEvent
from webgym_cli.report.charts import format_number, format_percent
from webgym_cli.store.metrics import read_batches, read_events, read_records
from webgym_cli.store.run import RunDir
from webgym_cli.util.text import format_duration

# `status` reads the warnings and draws no figure.
if TYPE_CHECKING:
    from webgym_cli.report.figures import Figure, ReportSection, Row

# Title, axis label, metric name, and whether the metric is a fraction.
CURVES = (
    ("Entropy", "nats a token", "actor/entropy", False),
    ("Response length", "tokens a row", "response_length/mean", False),
    ("Rows with gradient", "share", "actor/rows_with_gradient", True),
    ("Mismatch of server and trainer", "KL, nats a token", "rollout_corr/kl", False),
    ("Staleness", "policy versions", "staleness/mean", False),
)
# Title, axis label and name in the trainer's log of the curves over optimizer steps.
STEP_CURVES = (
    ("Loss", "loss", "loss"),
    ("Gradient norm", "norm", "actor/grad_norm"),
    ("Change of the policy in a training", "KL, nats a token", "actor/ppo_kl"),
    ("Distance from the reference policy", "KL, nats a token", "actor/kl_loss"),
    ("Learning rate", "learning rate", "lr"),
)
# Entropy collapse: the warning threshold as a fraction of the first training's entropy.
_ENTROPY_LEFT = 0.2
# Warning threshold of the KL divergence between server and trainer, in nats per token.
_MISMATCH = 0.1
_FEW_ROWS = 0.5
# Collapse of success: the warning threshold as a fraction of the best earlier rate.
_SUCCESS_LEFT = 0.5
# Rise of the entropy, as a factor, that is named with a falling success rate.
_ENTROPY_RISE = 1.2
# Keys of a batch event and their labels.
WAITS = {
    "trainer_wait_seconds": "trainer waited for episodes",
    "admission_wait_seconds": "slots waited for admission",
    "held_seconds": "episodes were held",
}


class _Success(NamedTuple):
    """Successes of one iteration of a series."""

    series: str
    iteration: int
    scored: int
    successes: float

    @property
    def rate(self) -> float:
        return self.successes / self.scored


def build_training_section(trainings: Sequence[TrainingEvent]) -> ReportSection:
    """Return the section with the trainer's metrics over policy versions."""
    from webgym_cli.report.figures import ReportSection, make_curve

    figures: list[Figure] = []
    for title, axis, name, share in CURVES:
        if rows := [{"iteration": one.version, **one.metrics} for one in trainings if name in one.metrics]:
            figures.append(make_curve(title, axis, {name: rows}, name, share=share))
    return ReportSection("policy-gradients", "Policy gradients", tuple(figures))


def build_step_figures(curves: Mapping[str, Mapping[str, Sequence[Row]]]) -> list[Figure]:
    """Return the figures over optimizer steps. `curves`: of each run (or series), those of `read_step_curves`."""
    from webgym_cli.report.figures import make_curve

    figures = []
    for title, axis, name in STEP_CURVES:
        if lines := {label: own[name] for label, own in curves.items() if name in own}:
            of = "version {version}, {lines} logged"
            figures.append(make_curve(title, axis, lines, "mean", of, x="optimizer_step"))
    return figures


def find_warnings(trainings: Sequence[TrainingEvent], points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return warnings of a policy collapse, from entropy, rewards, gradient norm, mismatch and success rate."""
    trained = [training for training in trainings if training.metrics]
    rates = [
        _Success(point["series"], point["iteration"], point["scored_cases"], point["solved_cases"])
        for point in points
        if point["band"] is None
    ]
    return [*_judge_trainings(trained), *_judge_success(rates, trained)]


def read_warnings(run: RunDir) -> list[str]:
    """Return the warnings of a policy collapse that follow from `metrics.jsonl` alone, without the index."""
    trained = [training for training in read_records(run, TrainingEvent) if training.metrics]
    newest = {
        (rate.series, rate.iteration): rate
        for rate in chain.from_iterable(map(_read, read_events(run, "rollout", "evaluation")))
    }
    return [*_judge_trainings(trained), *_judge_success(newest.values(), trained)]


def _read(event: Mapping[str, Any]) -> Iterator[_Success]:
    """Yield the result that an event holds; nothing for an event of another version."""
    series = name_series(str(event.get("policy")), str(event.get("split")))
    iteration, scored = event.get("iteration"), event.get("scored_cases", event.get("episodes"))
    solved = event.get("solved_cases", event.get("successes"))  # older versions counted repeats as trials
    if isinstance(iteration, int) and isinstance(scored, int) and isinstance(solved, int | float):
        yield _Success(series, iteration, scored, solved)


def _judge_trainings(trained: Sequence[TrainingEvent]) -> Iterator[str]:
    if not trained:
        return
    version, newest = trained[-1].version, trained[-1].metrics
    first = trained[0].metrics
    before, now = first.get("actor/entropy"), newest.get("actor/entropy")
    if before is not None and now is not None and now < before * _ENTROPY_LEFT:
        yield (
            f"The entropy fell from {before:.3g} to {now:.3g} nats a token: the policy repeats itself; a smaller "
            "rl.actor.optim.lr, rl.actor.entropy_coeff or a KL loss keeps it from that."
        )
    lowest, highest = newest.get("critic/score/min"), newest.get("critic/score/max")
    if lowest is not None and lowest == highest:
        yield f"All rewards that version {version} was trained on were {lowest:g}: they tell good from bad no more."
    share = newest.get("actor/rows_with_gradient")
    if share is not None and share < _FEW_ROWS:
        yield (
            f"Only {format_percent(share)} of the rows that version {version} was trained on had a gradient; "
            "rl.data.filter_groups.enable=true replaces groups of equal rewards."
        )
    # If known, only of steps with staleness 0: older steps differ because the policy has been updated since.
    mismatch = newest.get("rollout_corr/staleness_0/kl", newest.get("rollout_corr/kl", 0.0))
    if abs(mismatch) > _MISMATCH and newest.get("staleness/min", 0.0) == 0:
        yield (
            f"Server and trainer differ by {mismatch:.3g} nats a token at version {version}: look at serve.dtype, the "
            "sampling settings and the versions of both environments."
        )


def _judge_success(rates: Iterable[_Success], trained: Sequence[TrainingEvent]) -> Iterator[str]:
    """Yield a warning for each split whose newest success rate is at most half of its best one, beyond chance."""
    for split in ("test", "train"):
        mine = sorted((one for one in rates if one.series == split and one.scored), key=lambda one: one.iteration)
        if len(mine) < 2:
            continue
        newest = mine[-1]
        best = max(mine[:-1], key=lambda one: (one.rate, one.iteration))
        _, _, high = difference((best.successes, best.scored), (newest.successes, newest.scored))
        if newest.rate <= _SUCCESS_LEFT * best.rate and (high < 0 or newest.successes == 0 < best.successes):
            yield (
                f"The success rate of the {split} episodes fell from {best.rate:.2f} ({best.successes:.10g} of "
                f"{best.scored}, iteration {best.iteration}) to {newest.rate:.2f} ({newest.successes:.10g} of "
                f"{newest.scored}, iteration {newest.iteration}){_describe_entropy(trained, best.iteration)}"
            )


def _describe_entropy(trained: Sequence[TrainingEvent], since: int) -> str:
    """Return the end of the sentence on a falling success rate: how the entropy changed since that iteration."""
    known = [(one.version, one.metrics["actor/entropy"]) for one in trained if "actor/entropy" in one.metrics]
    earlier = (entropy for version, entropy in reversed(known) if version <= since)
    before = next(chain(earlier, (entropy for _, entropy in known)), 0.0)
    if not known or known[-1][1] < _ENTROPY_RISE * before:
        return "."
    return (
        f" while the entropy rose from {before:.3g} to {known[-1][1]:.3g} nats a token: the policy becomes random; a "
        "smaller rl.actor.optim.lr, no rl.actor.entropy_coeff or a KL loss keeps it from that, and an earlier "
        "checkpoint is better."
    )


def read_async_facts(run: RunDir) -> dict[str, list[dict[str, Any]]]:
    """Return the `batches`, which are `BatchEvent`s, and the `dropped` trajectories; empty for a synchronous run.

    These by `reason`: their `count`, and of those with a reward the `mean_reward`.
    """
    ledger = {parent: batch for parent, batch in read_batches(run).items() if batch.mode == "async"}
    events_of = {event.iteration: event for event in read_records(run, BatchEvent)}
    batches = [event.model_dump() for parent, event in sorted(events_of.items()) if parent in ledger]
    counts, rewards = Counter[str](), dict[str, list[float]]()
    for group in chain.from_iterable(batch.dropped for batch in ledger.values()):
        counts[group.reason] += len(group.trajectories)
        rewards.setdefault(group.reason, []).extend(reward for reward in group.rewards if reward is not None)
    dropped = [
        {"reason": reason, "count": count, "mean_reward": mean(rewards[reason], 6)}
        for reason, count in sorted(counts.items())
    ]
    return {"batches": batches, "dropped": dropped}


def build_async_section(facts: Mapping[str, Sequence[Mapping[str, Any]]]) -> ReportSection:
    """Return the section on asynchronous training; it has no figures for a synchronous run."""
    from webgym_cli.report.figures import ReportSection, build_table, make_bars, make_curve

    batches, figures = facts["batches"], []
    if batches:
        lines = {
            name: [{"iteration": batch["iteration"], "staleness": float(batch["staleness"][name])} for batch in batches]
            for name in ("mean", "max")
        }
        figures.append(make_curve("Staleness of the trained tokens", "trainings", lines, "staleness"))
        waits = [
            (f"version {batch['iteration']}", {words: batch[key] for key, words in WAITS.items() if batch[key]})
            for batch in batches
        ]
        figures.append(make_bars("Waits before each batch", waits, list(WAITS.values()), format_duration))
    if facts["dropped"]:
        rows = ((row["reason"], row["count"], format_number(row["mean_reward"])) for row in facts["dropped"])
        columns = ("reason", "episodes", "mean reward")
        figures.append(build_table("Episodes that were not trained on", columns, rows))
    note = (
        "Staleness: trainings between the policy that produced a token and the one that is trained. Waits of slots and "
        "episodes are sums over them."
    )
    return ReportSection("asynchronous", "Asynchronous training", tuple(figures), note)
