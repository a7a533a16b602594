"""Execution of an import: reads the sources in order and stores each episode once, its screenshots before its line."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from webgym_cli.agent.prompt import Prompt
from webgym_cli.errors import UsageError
from webgym_cli.imports.pictures import UnreadableImage, load_png
from webgym_cli.imports.plan import ImportPlan
from webgym_cli.imports.source import ImportedEpisode, ImportedStep, SkippedEpisode, SkipReason, compute_digest
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.judgement import Judgement, with_verdict
from webgym_cli.records.trajectory import Observation, Screenshot, SentPrompt, Step, Trajectory
from webgym_cli.store.buffer import append, append_judgement
from webgym_cli.store.checkpoints import set_first_version
from webgym_cli.store.index.query import open_index
from webgym_cli.store.index.temporary_index import temporary_index
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore, png_size
from webgym_cli.util.text import format_count

# Number of hex digits of an episode's digest in its id.
_ID_DIGITS = 16
_ID = re.compile(rf"-[a-z]+-([0-9a-f]{{{_ID_DIGITS}}})$")
# Number of episodes of one file between updates of the progress bar.
_PROGRESS_EVERY = 20
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
            example = f"{skipped.where}: {skipped.detail}" if skipped.detail else skipped.where
            self.examples.setdefault(skipped.why.value, []).append(example)

    def to_json(self) -> dict[str, object]:
        """Return the counts for the summary, with mappings sorted by key."""
        facts = vars(self).items()
        return {name: dict(sorted(fact.items())) if isinstance(fact, dict) else fact for name, fact in facts}


@dataclass(slots=True)
class Importer:
    """Execution of one `webgym import`."""

    plan: ImportPlan
    run: RunDir
    sink: EventSink
    dry: bool = False
    """Dry run: only count, write nothing."""
    report: ImportCounts = field(default_factory=ImportCounts)
    _known: set[str] = field(default_factory=set)
    _iteration: int = 0
    """Iteration that receives the episodes of the current source."""

    def execute(self) -> dict[str, Any]:
        """Import all sources and return the summary event. Raises `StoreError`; episodes stored before that remain."""
        start = time.monotonic()
        self._known = self._find_imported()
        if self.plan.first_version is not None and not self.dry:
            set_first_version(self.run, self.plan.first_version)
        for number, source in enumerate(self.plan.sources, 1):
            try:
                self._iteration = self.plan.iteration_of(source)
                for count, one in enumerate(self.plan.format.read(source, self.plan.images)):
                    self._import_episode(one)
                    if count % _PROGRESS_EVERY == 0:
                        self.sink(make_event(**self._progress_event(str(source), number - 1), transient=True))
            # One bad file does not end the import of the others; the command fails at its end.
            except UsageError as error:  # the file; its message begins with the name
                self._skip_source(source, str(error))
            except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
                # a format of the user's, whose reader met what it does not expect
                self._skip_source(source, f"{source}: {type(error).__name__}: {error}")
            self.sink(make_event(**self._progress_event(str(source), number)))
        seconds = round(time.monotonic() - start, 2)
        facts = {"format": self.plan.name, "iteration": self.plan.iteration, "sources": len(self.plan.sources)}
        return {"event": "import", "dry_run": self.dry, **facts, **self.report.to_json(), "seconds": seconds}

    def _skip_source(self, source: Path, detail: str) -> None:
        self.report.skip(SkippedEpisode(SkipReason.UNREADABLE, detail))
        self.sink(make_event("unreadable", source=str(source), message=detail))

    def _find_imported(self) -> set[str]:
        """Return the digests in the ids of the imported episodes of all iterations."""
        if not self.run.exists:
            return set()
        place = temporary_index(self.run) if self.dry else nullcontext(self.run)
        with place as run, open_index(run, progress=self.sink) as index:
            matches = (
                _ID.search(row["id"]) for row in index.rows("SELECT id FROM stored WHERE id SIMILAR TO '.*-[a-z]+-.*'")
            )
            return {match[1] for match in matches if match}

    def _import_episode(self, one: ImportedEpisode | SkippedEpisode) -> None:
        if isinstance(one, SkippedEpisode):
            self.report.skip(one)
            return
        digest = one.digest[:_ID_DIGITS]
        # Identified by content, not by file name, because copies of a run contain the same episode.
        if digest in self._known:
            self.report.skip(SkippedEpisode(SkipReason.KNOWN, one.where))
            return
        try:
            pictures = [None if step.picture is None else load_png(step.picture) for step in one.steps]
            trajectory, verdict = self._build_trajectory(one, pictures)
        except UnreadableImage as error:
            self.report.skip(SkippedEpisode(SkipReason.SCREENSHOT_MISSING, one.where, str(error)))
            return
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            detail = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            self.report.skip(SkippedEpisode(SkipReason.NOT_UNDERSTOOD, one.where, detail))
            return
        self._store(trajectory, verdict, pictures)
        self._known.add(digest)
        self.report.take(
            with_verdict(trajectory, verdict) if verdict else trajectory, one.lost_steps, verdict is not None
        )

    def _build_trajectory(
        self, one: ImportedEpisode, pictures: list[bytes | None]
    ) -> tuple[Trajectory, Judgement | None]:
        """Return an episode's trajectory and judgement."""
        split = self.plan.split or one.split
        name = f"{split}-{self._iteration:04d}-{_short_name(self.plan.name)}-{one.digest[:_ID_DIGITS]}"
        shots = [None if png is None else _describe_picture(png) for png in pictures]
        trajectory = Trajectory(
            id=name,
            episode=name,
            split=split,
            iteration=self._iteration,
            task=one.task,
            instruction=one.task.instruction,
            seed=one.seed,
            policy=one.policy,
            prompt=self.plan.prompt if self.plan.format.text else one.prompt,
            steps=tuple(_build_step(number, step, shots) for number, step in enumerate(one.steps)),
            outcome=one.outcome,
            started_at=one.started_at,
            seconds=one.seconds,
        )
        return trajectory, one.verdict and one.verdict.model_copy(update={"trajectory": name})

    def _store(self, trajectory: Trajectory, verdict: Judgement | None, pictures: list[bytes | None]) -> None:
        """Store an episode's screenshots, its judgement, and last its line, which marks it as imported."""
        store = ScreenshotStore(self.run.screenshots)
        pairs = zip(trajectory.steps, pictures, strict=True)
        pngs = {shot.sha256: png for step, png in pairs if png for shot in step.observation.pictures}
        for sha256, png in pngs.items():
            self.report.new_images += not store.path(sha256).exists()
            if not self.dry:
                store.put(png)
        if self.dry:
            return
        if verdict:
            # The line comes last: if the import is killed before that, the next one imports the episode again.
            append_judgement(self.run, trajectory.split, trajectory.iteration, verdict)
        append(self.run, trajectory)

    def _progress_event(self, source: str, done: int) -> dict[str, Any]:
        report = self.report
        skipped = f"  {sum(report.skipped.values())} skipped" if report.skipped else ""
        return {
            "event": "imported",
            "source": source,
            "imported": report.imported,
            "bar": "import",
            "done": done,
            "total": len(self.plan.sources),
            "facts": f"{format_count(report.imported, 'episode')}{skipped}",
        }


def _describe_picture(png: bytes) -> Screenshot:
    width, height = png_size(png)
    return Screenshot(sha256=hashlib.sha256(png).hexdigest(), width=width, height=height)


def _build_step(number: int, step: ImportedStep, shots: list[Screenshot | None]) -> Step:
    changed = step.page_changed
    # The last step has no next screenshot.
    if number + 1 == len(shots):
        changed = None
    # Not recorded by the format: compare with the next screenshot.
    elif changed is None:
        changed = shots[number] != shots[number + 1] if shots[number] else None
    sent = step.sent and SentPrompt(
        messages=step.sent.messages,
        images=tuple(shot.sha256 for picture in step.sent.pictures if (shot := shots[picture])),
    )
    return Step(
        index=number,
        observation=Observation(url=step.url, title=step.title, html=step.html, screenshot=shots[number]),
        response=step.response,
        action=step.action,
        parse_error=step.parse_error,
        page_changed=changed,
        prompt_digest=Prompt(sent.messages, sent.images).digest if sent else compute_digest(step.prompt),
        sent=sent,
        policy_seconds=step.policy_seconds,
        environment_seconds=step.environment_seconds,
    )


def require_imported(summary: Mapping[str, Any], plan: ImportPlan) -> None:
    """Raise `UsageError` if a file could not be read, or if there was no episode to import."""
    skipped, examples = summary["skipped"], summary["examples"]
    if unreadable := skipped.get(SkipReason.UNREADABLE):
        more = f" (and {unreadable - 1} more)" if unreadable > 1 else ""
        raise UsageError(
            f"{examples[SkipReason.UNREADABLE][0]}{more}", hint="the other episodes are imported; leave it out"
        )
    if not summary["imported"] and not skipped.get(SkipReason.KNOWN):
        why, texts = next(iter(examples.items()), ("empty", [f"{plan.path}: no episode"]))
        hint = "name the folder of the pictures by --images DIR" if why == SkipReason.SCREENSHOT_MISSING else ""
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
    counted = f": {', '.join(parts)}" if parts else ""
    return f"{done} {summary['imported']}{counted}" + (f"; skipped: {left}" if left else "")


def _short_name(name: str) -> str:
    """Return a format's name as letters and hyphens, as `_ID` matches it; without the location of its code."""
    return re.sub(r"[^a-z]+", "-", name.rpartition(":")[2].lower()).strip("-") or "import"
