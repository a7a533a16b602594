"""Execution of an import: reads the sources in order and stores each episode once, its screenshots before its line."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from webgym_cli.agent.actions.action_sets import is_text
from webgym_cli.agent.prompt import Prompt
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.imports.files import UnreadableImage, load_png
from webgym_cli.imports.plan import ImportCounts, ImportPlan
from webgym_cli.imports.source import (
    ImportedEpisode,
    ImportedStep,
    Picture,
    SkippedEpisode,
    SkipReason,
    StoredEpisode,
    compute_digest,
)
from webgym_cli.imports.stored_run import list_identities
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.judgement import Judgement, effective_verdict, with_verdict
from webgym_cli.records.series import IMPORTED_ID
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Observation, Outcome, Screenshot, SentPrompt, Step, ToolResult, Trajectory
from webgym_cli.store.buffer import append, append_judgement
from webgym_cli.store.checkpoints import set_first_version
from webgym_cli.store.index.query import open_index, temporary_index
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore, describe_png
from webgym_cli.tasks.encryption import is_encrypted
from webgym_cli.util.optional import when
from webgym_cli.util.text import format_count

# Number of hex digits of an episode's digest in its id.
_ID_DIGITS = 16
# What a format yields.
_Read = ImportedEpisode | StoredEpisode | SkippedEpisode
_FORBIDDEN = "the authors of its benchmark forbid to train on it"
_OTHER_PAGES = "its pages are texts and the run's policy reads screenshots, or the other way round"
# Number of episodes of one file between updates of the progress bar.
_PROGRESS_EVERY = 20


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
                for count, one in enumerate(map(_refuse_encrypted, self.plan.format.read(source, self.plan.images))):
                    if isinstance(one, SkippedEpisode):
                        self.report.skip(one)
                    # Identified by content, not by file name, because copies of a run contain the same episode.
                    elif (digest := one.digest[:_ID_DIGITS]) in self._known:
                        self.report.skip(SkippedEpisode(SkipReason.KNOWN, one.where))
                    elif self._take_stored(one) if isinstance(one, StoredEpisode) else self._convert(one):
                        self._known.add(digest)
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
        """Return the digests in the ids of the imported episodes of all iterations, and those of all as a run's."""
        if not self.run.exists:
            return set()
        place = temporary_index(self.run) if self.dry else nullcontext(self.run)
        with place as run, open_index(run, progress=self.sink) as index:
            digests = index.rows(f"SELECT DISTINCT regexp_extract(id, '{IMPORTED_ID}', 1) AS digest FROM stored")
            identities = {digest[:_ID_DIGITS] for digest in list_identities(index)}
            return identities | {row["digest"] for row in digests}

    def _take_stored(self, one: StoredEpisode) -> bool:
        """Import an episode of another run; return whether it was imported."""
        before, target = one.trajectory, ScreenshotStore(self.run.screenshots)
        try:
            problem = when(is_text(before.prompt) != is_text(self.plan.prompt), _OTHER_PAGES)
        except UsageError as error:  # an action set of a plug-in that this run lacks
            problem = str(error)
        if problem:
            self.report.skip(SkippedEpisode(SkipReason.NOT_UNDERSTOOD, one.where, problem))
            return False
        images = {shot.sha256 for shot in before.pictures}
        images.update(sha256 for step in before.steps if step.sent for sha256 in step.sent.images)
        try:
            for sha256 in images:
                one.screenshots.get(sha256)
        except StoreError as error:
            self.report.skip(SkippedEpisode(SkipReason.SCREENSHOT_MISSING, one.where, str(error)))
            return False
        split = self.plan.split or before.split
        iteration = self._iteration if self.plan.first_version is None else before.iteration
        name = self._name(split, iteration, one.digest)
        changes = {"id": name, "episode": name, "split": split, "iteration": iteration, "attempt": 0}
        judgements = [judgement.model_copy(update={"trajectory": name}) for judgement in one.judgements]
        self._store(
            before.model_copy(update=changes), judgements, images, lambda sha256: target.copy(sha256, one.screenshots)
        )
        verdict = effective_verdict(one.judgements)
        self.report.take(with_verdict(before, verdict), 0, verdict is not None)
        return True

    def _convert(self, one: ImportedEpisode) -> bool:
        """Import an episode of another system; return whether it was imported."""
        try:
            names = {name: None for step in one.steps for name in (step.picture, *step.more_pictures)}
            pictures = {name: load_png(name) for name in names if name is not None}
            shots = {name: describe_png(png) for name, png in pictures.items()}
            split = self.plan.split or one.split
            name = self._name(split, self._iteration, one.digest)
            trajectory = Trajectory(
                id=name,
                episode=name,
                split=split,
                iteration=self._iteration,
                task=one.task,
                instruction=one.task.instruction,
                seed=one.seed,
                policy=one.policy,
                prompt=self.plan.text_prompt if self.plan.format.text else one.prompt,
                steps=tuple(_build_step(number, one.steps, shots) for number in range(len(one.steps))),
                outcome=_with_threshold(one.outcome, self.plan.success_threshold),
                started_at=one.started_at,
                seconds=one.seconds,
            )
            verdict = one.verdict and one.verdict.model_copy(update={"trajectory": name})
        except UnreadableImage as error:
            self.report.skip(SkippedEpisode(SkipReason.SCREENSHOT_MISSING, one.where, str(error)))
            return False
        except ValidationError as error:
            self.report.skip(SkippedEpisode(SkipReason.NOT_UNDERSTOOD, one.where, describe_invalid(error)))
            return False
        pngs = {shots[name].sha256: png for name, png in pictures.items()}
        target = ScreenshotStore(self.run.screenshots)
        judgements = list(filter(None, [verdict]))
        self._store(trajectory, judgements, pngs, lambda sha256: target.put(pngs[sha256]))
        self.report.take(with_verdict(trajectory, verdict), one.lost_steps, verdict is not None)
        return True

    def _name(self, split: Split, iteration: int, digest: str) -> str:
        # The format's name as letters and hyphens, as `IMPORTED_ID` matches it; without the location of its code.
        form = re.sub(r"[^a-z]+", "-", self.plan.name.rpartition(":")[2].lower()).strip("-") or "import"
        return f"{split}-{iteration:04d}-{form}-{digest[:_ID_DIGITS]}"

    def _store(
        self,
        trajectory: Trajectory,
        judgements: Iterable[Judgement],
        images: Iterable[str],
        put: Callable[[str], object],
    ) -> None:
        """Store an episode's screenshots, its judgements, and last its line, which marks it as imported.

        `put`: stores an image by its digest.
        """
        store = ScreenshotStore(self.run.screenshots)
        for sha256 in images:
            self.report.new_images += not store.path(sha256).exists()
            if not self.dry:
                put(sha256)
        if self.dry:
            return
        for judgement in judgements:
            # The line comes last: if the import is killed before that, the next one imports the episode again.
            append_judgement(self.run, trajectory.split, trajectory.iteration, judgement)
        append(self.run, trajectory)

    def _progress_event(self, source: str, done: int) -> dict[str, Any]:
        report = self.report
        skipped = when(report.skipped, f"  {sum(report.skipped.values())} skipped")
        return {
            "event": "imported",
            "source": source,
            "imported": report.imported,
            "bar": "import",
            "done": done,
            "total": len(self.plan.sources),
            "facts": f"{format_count(report.imported, 'episode')}{skipped}",
        }


def _refuse_encrypted(one: _Read) -> _Read:
    stored = one.trajectory if isinstance(one, StoredEpisode) else one
    if isinstance(stored, SkippedEpisode) or not is_encrypted(stored.task):
        return one
    return SkippedEpisode(SkipReason.NOT_UNDERSTOOD, one.where, _FORBIDDEN)


def _with_threshold(outcome: Outcome, threshold: float) -> Outcome:
    """Return the outcome with the run's threshold, unless a reward model has decided."""
    if any(score.source == "orm" for score in outcome.scores):
        return outcome
    return outcome.model_copy(update={"success_threshold": threshold})


def _build_step(number: int, steps: Sequence[ImportedStep], shots: Mapping[Picture, Screenshot]) -> Step:
    step, changed = steps[number], steps[number].page_changed
    shot = None if step.picture is None else shots[step.picture]
    # The last step has no next screenshot.
    if number + 1 == len(steps):
        changed = None
    # Not recorded by the format: compare with the next screenshot.
    elif changed is None and step.picture is not None:
        following = steps[number + 1].picture
        changed = following is None or shot != shots[following]
    sent = step.sent and SentPrompt(
        messages=step.sent.messages, images=tuple(shots[picture].sha256 for picture in step.sent.images)
    )
    results = tuple(ToolResult(name="image", text="", image=shots[picture]) for picture in step.more_pictures)
    return Step(
        index=number,
        observation=Observation(url=step.url, title=step.title, html=step.html, screenshot=shot, results=results),
        response=step.response,
        action=step.action,
        parse_error=step.parse_error,
        page_changed=changed,
        prompt_digest=Prompt(sent.messages, sent.images).digest if sent else compute_digest(step.prompt),
        sent=sent,
        policy_seconds=step.policy_seconds,
        environment_seconds=step.environment_seconds,
    )
