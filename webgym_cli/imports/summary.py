"""Counts of an import, and its summary in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.errors import UsageError
from webgym_cli.imports.plan import ImportPlan
from webgym_cli.imports.source import SkippedEpisode, SkipReason
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.util.optional import when
from webgym_cli.util.text import and_more, format_count

# Maximum number of examples per skip reason in the summary.
_EXAMPLES = 5


@dataclass
class ImportCounts:
    """Counts of one import, which are fields of its summary."""

    imported: int = 0
    steps: int = 0
    solved: int = 0
    judged: int = 0
    """Imported episodes with a verdict of the other system's judge."""
    failures: Counter[str] = field(default_factory=Counter)
    steps_without_action: int = 0
    """Steps whose action has no counterpart here: imported, but never trained on."""
    steps_not_answered: int = 0
    """Steps without a response of the policy, which are not imported."""
    new_images: int = 0
    """Screenshots that were new to the run."""
    skipped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Examples of skipped episodes, by reason."""

    def take(self, trajectory: Trajectory, lost: int, verdict: bool) -> None:
        """Count an imported episode, whose outcome includes its verdict. `lost`: number of its steps not imported."""
        self.imported += 1
        self.steps += len(trajectory.steps)
        self.steps_not_answered += lost
        self.judged += verdict
        self.solved += trajectory.outcome.success is True
        self.steps_without_action += sum(step.action is None for step in trajectory.steps)
        if trajectory.outcome.failure:
            self.failures[trajectory.outcome.failure.value] += 1

    def skip(self, skipped: SkippedEpisode) -> None:
        """Count a skipped episode."""
        self.skipped[skipped.why.value] += 1
        if skipped.why is not SkipReason.KNOWN and self.skipped[skipped.why.value] <= _EXAMPLES:
            example = ": ".join(filter(None, (skipped.where, skipped.detail)))
            self.examples.setdefault(skipped.why.value, []).append(example)

    def to_json(self) -> dict[str, object]:
        """Return the counts for the summary, with mappings sorted by key."""
        facts = vars(self).items()
        return {name: dict(sorted(fact.items())) if isinstance(fact, dict) else fact for name, fact in facts}


def require_imported(summary: Mapping[str, Any], plan: ImportPlan) -> None:
    """Raise `UsageError` if a file could not be read, or if there was no episode to import."""
    skipped, examples = summary["skipped"], summary["examples"]
    if unreadable := skipped.get(SkipReason.UNREADABLE):
        raise UsageError(
            f"{examples[SkipReason.UNREADABLE][0]}{and_more(unreadable)}",
            hint="the other episodes are imported; leave it out",
        )
    if not summary["imported"] and not skipped.get(SkipReason.KNOWN):
        why, texts = next(iter(examples.items()), ("empty", [f"{plan.path}: no episode"]))
        hint = when(why == SkipReason.SCREENSHOT_MISSING, "name the folder of the pictures by --images DIR")
        raise UsageError(f"nothing was imported: {skipped.get(why, 0)} x {why}, the first: {texts[0]}", hint=hint)


def format_import(summary: Mapping[str, Any]) -> str:
    """Format the summary in one line."""
    counts = (
        (summary["solved"], f"{summary['solved']} solved"),
        (failed := sum(summary["failures"].values()), f"{failed} failed by their infrastructure"),
        (summary["steps"], format_count(summary["steps"], "step")),
        (summary["new_images"], format_count(summary["new_images"], "new image")),
        (without := summary["steps_without_action"], f"{format_count(without, 'step')} without an action of ours"),
    )
    parts = [words for count, words in counts if count]
    left = "; ".join(f"{count} {why}" for why, count in summary["skipped"].items())
    done = "would import" if summary["dry_run"] else "imported"
    counted = when(parts, f": {', '.join(parts)}")
    return f"{done} {summary['imported']}{counted}" + when(left, f"; skipped: {left}")
