"""Curves of the policy-gradient trainer's metrics, and warnings of a policy collapse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webgym_cli.records.stored_events import TrainingEvent
from webgym_cli.report.charts import format_percent
from webgym_cli.report.figures import Figure, ReportSection, make_curve
from webgym_cli.report.success import SuccessPoint

# Title, axis label, metric name, and whether the metric is a fraction.
CURVES = (
    ("Entropy", "nats a token", "actor/entropy", False),
    ("Response length", "tokens a row", "response_length/mean", False),
    ("Rows with gradient", "share", "actor/rows_with_gradient", True),
    ("Mismatch of server and trainer", "KL, nats a token", "rollout_corr/kl", False),
    ("Staleness", "policy versions", "staleness/mean", False),
)
# Entropy collapse: the warning threshold as a fraction of the first training's entropy.
_ENTROPY_LEFT = 0.2
# Warning threshold of the KL divergence between server and trainer, in nats per token.
_MISMATCH = 0.1
_FEW_ROWS = 0.5


def build_training_section(trainings: Sequence[TrainingEvent]) -> ReportSection:
    """Return the section with the trainer's metrics over policy versions."""
    figures: list[Figure] = []
    for title, axis, name, share in CURVES:
        if rows := [{"iteration": one.version, **one.metrics} for one in trainings if name in one.metrics]:
            figures.append(make_curve(title, axis, {name: rows}, name, share=share))
    return ReportSection("policy-gradients", "Policy gradients", tuple(figures))


def find_warnings(trainings: Sequence[TrainingEvent], points: Sequence[SuccessPoint]) -> list[str]:
    """Return warnings of a policy collapse, from entropy, rewards, gradient norm, mismatch and success rate."""
    trained = [training for training in trainings if training.metrics]
    return [*(_judge_trainings(trained) if trained else ()), *_judge_success(points)]


def _judge_trainings(trained: Sequence[TrainingEvent]) -> Iterator[str]:
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


def _judge_success(points: Sequence[SuccessPoint]) -> Iterator[str]:
    scored = [point for point in points if point["series"] == "train" and point["band"] is None and point["scored"]]
    scored.sort(key=lambda point: point["iteration"])
    if len(scored) > 1 and scored[-1]["successes"] == 0 and (solved := [one for one in scored if one["successes"]]):
        yield (
            f"No training episode of iteration {scored[-1]['iteration']} succeeded, {solved[-1]['successes']} of "
            f"{solved[-1]['scored']} did in iteration {solved[-1]['iteration']}."
        )
