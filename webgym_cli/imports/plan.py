"""Planning of an import: detects the format under a path, and selects iterations and split of its episodes.

Also the counts of an import, and its summary in one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webgym_cli.agent.actions.action_sets import is_text
from webgym_cli.errors import UsageError
from webgym_cli.imports.registry import IMPORT_FORMATS, RESULTS
from webgym_cli.imports.source import ImportFormat, SkippedEpisode, SkipReason
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import SUCCESS_REWARD, PromptSpec, Trajectory
from webgym_cli.store.checkpoints import is_startable, version
from webgym_cli.store.run import RunDir
from webgym_cli.util.optional import when
from webgym_cli.util.text import and_more, format_count

# Name that selects the first format whose files are present.
AUTO = "auto"
# Maximum number of examples per skip reason in the summary.
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """Plan of `webgym import`: the files to read, and the destination of their episodes."""

    name: str
    """The format's name."""
    format: ImportFormat
    """The format, for the run's policy and the episodes that are asked for."""
    path: Path
    sources: tuple[Path, ...]
    """Files, or folders of one episode, in the order of reading."""
    iteration: int
    """Iteration that receives the episodes whose files' iteration is unknown or not kept."""
    split: Split | None = None
    """Split that receives the episodes; None: taken from their files."""
    images: Path | None = None
    """Folder of the images, if they are not beside the files."""
    first_version: int | None = None
    """Version of the run's first policy, if episodes keep the iterations of their files; else None."""
    prompt: PromptSpec = field(default_factory=PromptSpec)
    """Prompt of the episodes with text pages."""
    success_threshold: float = SUCCESS_REWARD
    """`rollout.success_threshold`."""

    def iteration_of(self, source: Path) -> int:
        """Return the iteration that receives a source's episodes."""
        if self.first_version is not None and (own := self.format.iteration_of(source)) is not None:
            return own
        return self.iteration

    @property
    def text_prompt(self) -> PromptSpec:
        """The prompt of episodes whose pages are texts."""
        options = self.prompt.options | dict(self.format.prompt_options)
        return self.prompt.model_copy(update={"options": options})


def plan_import(
    run: RunDir,
    name: str,
    path: Path,
    *,
    iteration: int | None = None,
    split: Split | None = None,
    images: Path | None = None,
    prompt: PromptSpec | None = None,
    where: str | None = None,
    success_threshold: float = SUCCESS_REWARD,
) -> ImportPlan:
    """Plan an import. `name`: that of an import format, or `auto`. `prompt`: that of the run's policy.

    `iteration` None: those of the files, if the run has neither checkpoints nor rollouts; else its policy version.

    Raises `UsageError` if there is no such format or no file of it, for a condition that it does not take, if the
    policy reads texts and the format has pictures or the other way round, or if an iteration contains episodes of a
    rollout.
    """
    prompt = prompt or PromptSpec()
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    if images is not None and not images.is_dir():
        raise UsageError(f"{images}: no such folder", hint="name the folder of the pictures by --images DIR")
    detected, sources = _detect_sources(name, path)
    if run.root in sources:
        raise UsageError(f"{path}: these are the run's own episodes", hint=f"webgym import {name} ANOTHER_RUN {path}")
    form = _find_format(detected, prompt)
    if where is not None:
        form = _select(detected, form, path, where)
    numbers = [number for source in sources if (number := form.iteration_of(source)) is not None]
    first = None
    if iteration is not None or not is_startable(run):
        numbers = []
    if numbers:
        iteration = max(numbers)
        first = max(iteration, version(run))
    elif iteration is None:
        iteration = version(run)
    into_split = split or form.split
    for number in {iteration, *numbers}:
        for one in (into_split,) if into_split else Split:
            refuse_rollouts(run, one, number)
    return ImportPlan(
        detected, form, path, tuple(sources), iteration, into_split, images, first, prompt, success_threshold
    )


def _select(name: str, form: ImportFormat, path: Path, where: str) -> ImportFormat:
    """Return the format for the episodes that match a condition. Raises `UsageError`."""
    if form.select is None:
        raise UsageError(f"--where: {name} takes no condition", hint="only FORMAT run does")
    return form.select(path, where)


def _find_format(name: str, prompt: PromptSpec) -> ImportFormat:
    """Return a format for the run's policy. Raises `UsageError` if that observes pages in another form."""
    form = IMPORT_FORMATS.find(name)
    if form.for_policy:
        form = form.for_policy(prompt)
    if prompt.version in form.action_sets or (not form.action_sets and form.text in (None, is_text(prompt))):
        return form
    has, reads = ("texts", "screenshots") if form.text else ("screenshots", "texts")
    raise UsageError(
        f"{name}: its pages are {has}, and the run's policy reads {reads} "
        f"(context_config.prompt_version={prompt.version})",
        hint="-c webrl and a new RUN" if form.text else "a new RUN without -c webrl",
    )


def refuse_rollouts(run: RunDir, split: Split, iteration: int) -> None:
    """Raise `UsageError` if an iteration has a plan, which means that its episodes are a rollout's."""
    if run.plan(split, iteration).is_file():
        # The iteration of a rollout identifies its policy; imported episodes have another one.
        free = max((*run.list_iterations(Split.TRAIN), *run.list_iterations(Split.TEST), iteration)) + 1
        raise UsageError(
            f"{run.root}: its {split} iteration {iteration} is a rollout's: episodes of others would be mixed into it",
            hint=f"--iteration {free} (prepare reads it once the policy is at that version), or another RUN",
        )


def _detect_sources(name: str, path: Path) -> tuple[str, list[Path]]:
    """Return the name of the format and its sources under a path. Raises `UsageError`."""
    if name != AUTO:
        form = IMPORT_FORMATS.find(name)
        if sources := form.find(path):
            return name, sources
        if form.otherwise and (sources := IMPORT_FORMATS.find(form.otherwise).find(path)):
            return form.otherwise, sources
        raise UsageError(f"{path}: nothing of the format {name} is there: it takes {form.expects}")
    # The first format with files there, those of plugins before the others.
    known = list(IMPORT_FORMATS.known())
    if path.is_file():
        # WebGym's files have any name, so the formats with this suffix are asked before it.
        known.sort(key=lambda entry: entry.item is None or path.suffix not in entry.item.suffixes)
    for entry in known:
        if entry.item and (sources := entry.item.find(path)):
            # Results of several benchmarks may lie side by side.
            both = [name for name in RESULTS if entry.name in RESULTS and IMPORT_FORMATS.find(name).find(path)]
            if len(both) > 1:
                raise UsageError(f"{path}: {' and '.join(both)} are there", hint=f"webgym import {both[0]} {path} RUN")
            return entry.name, sources
    expected = "; ".join(f"{entry.name}: {entry.item.expects if entry.item else entry.problem}" for entry in known)
    raise UsageError(f"{path}: nothing that can be imported is there ({expected})")


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
        if not examples:
            raise UsageError(
                f"{plan.path}: no episode, or none that matches --where", hint="name others, or another condition"
            )
        why, texts = next(iter(examples.items()))
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
    done = "imported"
    if summary["dry_run"]:
        done = "would import"
    counted = when(parts, f": {', '.join(parts)}")
    return f"{done} {summary['imported']}{counted}" + when(left, f"; skipped: {left}")
