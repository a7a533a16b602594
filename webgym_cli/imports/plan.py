"""Decides what an import reads: which system's files lie under a path, and where their episodes go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from webgym_cli.errors import UsageError
from webgym_cli.imports.agentlab import AGENTLAB
from webgym_cli.imports.source import ImportFormat
from webgym_cli.imports.visualagentbench import VISUALAGENTBENCH, WEBRL
from webgym_cli.imports.webgym import WEBGYM
from webgym_cli.imports.webrl_data import WEBRL_DATA
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import list_iterations
from webgym_cli.store.checkpoints import is_startable, version
from webgym_cli.store.run import RunDir

# Name -> format, in the order in which they are looked for: a WebRL rollout is VisualAgentBench's with traces.
FORMATS: dict[str, ImportFormat] = {
    "webgym": WEBGYM,
    "agentlab": AGENTLAB,
    "webrl": WEBRL,
    "visualagentbench": VISUALAGENTBENCH,
    "webrl-data": WEBRL_DATA,
}
# Stands for the first of the formats whose files are there.
AUTO = "auto"


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What `webgym import` will read, and where its episodes go."""

    name: str
    """The format's name."""
    path: Path
    sources: tuple[Path, ...]
    """Files, or folders of one episode, in the order of reading."""
    iteration: int
    """The iteration of the run that takes the episodes."""
    split: Split | None = None
    """The split that takes them; None: as their files say."""
    images: Path | None = None
    """Where the pictures are, when not beside the files."""
    first_version: int | None = None
    """The version that the run's first policy becomes, where episodes keep the iterations of their files."""

    def iteration_of(self, source: Path) -> int:
        """Return the iteration that takes a source's episodes."""
        own = None if self.first_version is None else self.format.iteration_of(source)
        return self.iteration if own is None else own

    @property
    def format(self) -> ImportFormat:
        """The format."""
        return FORMATS[self.name]


def plan_import(
    run: RunDir,
    name: str,
    path: Path,
    *,
    iteration: int | None = None,
    split: Split | None = None,
    images: Path | None = None,
) -> ImportPlan:
    """Return the plan. `name`: one of `FORMATS`, or `auto`.

    `iteration` None: those of the files in a run without episodes of its own, else the one that its policy is at.

    Raises `UsageError` where nothing of the format is there, or a rollout's episodes are in the iteration.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    if images is not None and not images.is_dir():
        raise UsageError(f"{images}: no such folder", hint="name the folder of the pictures by --images DIR")
    detected, sources = _detect_sources(name, path)
    form = FORMATS[detected]
    numbers = [number for source in sources if (number := form.iteration_of(source)) is not None]
    keeps = iteration is None and bool(numbers) and is_startable(run)
    into = max(numbers) if keeps else version(run) if iteration is None else iteration
    into_split = split or form.split
    for number in {into, *(numbers if keeps else ())}:
        for one in Split if into_split is None else (into_split,):
            refuse_rollouts(run, one, number)
    first = max(into, version(run)) if keeps else None
    return ImportPlan(detected, path, tuple(sources), into, into_split, images, first)


def refuse_rollouts(run: RunDir, split: Split, iteration: int) -> None:
    """Raise `UsageError` when an iteration has a plan: its episodes are a rollout's, and their policy is known."""
    if run.plan(split, iteration).is_file():
        # The policy of a rollout is known by its iteration; imported episodes have another one.
        free = max((*list_iterations(run, Split.TRAIN), *list_iterations(run, Split.TEST), iteration)) + 1
        raise UsageError(
            f"{run.root}: its {split} iteration {iteration} is a rollout's: episodes of others would be mixed into it",
            hint=f"--iteration {free} (prepare reads it once the policy is at that version), or another RUN",
        )


def _detect_sources(name: str, path: Path) -> tuple[str, list[Path]]:
    """Return the format that counts and its sources under a path."""
    # The traces of a rollout come first where a folder has both.
    if name == "webrl" and WEBRL_DATA.find(path) and (path.is_file() or not WEBRL.find(path)):
        name = "webrl-data"
    if name != AUTO:
        if sources := FORMATS[name].find(path):
            return name, sources
        raise UsageError(f"{path}: nothing of the format {name} is there: it takes {FORMATS[name].expects}")
    if path.is_file():
        # A file is named on purpose, so its ending decides and find() is not asked.
        return {".jsonl": "webrl", ".pt": "webrl-data", ".json": "webrl-data"}.get(path.suffix, "webgym"), [path]
    for other, form in FORMATS.items():
        if sources := form.find(path):
            return other, sources
    known = "; ".join(f"{other}: {form.expects}" for other, form in FORMATS.items())
    raise UsageError(f"{path}: nothing that can be imported is there ({known})")
