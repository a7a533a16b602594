"""Named trajectories as ShareGPT records, outside any run: for other trainers and other eyes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from webgym_cli.agent.prompt import render_step, safe_text
from webgym_cli.config.model import Settings
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.prepare.convert import with_opening
from webgym_cli.prepare.filters import step_drop, trajectory_drop
from webgym_cli.prepare.inspect import Query, select
from webgym_cli.prepare.sharegpt import to_sharegpt
from webgym_cli.records.sample import Message, Sample
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore


def export(run: RunDir, settings: Settings, ids: Iterable[str] | None, images: Path | None) -> Iterator[dict[str, Any]]:
    """Yield a record for each usable step of the named trajectories; of all that `prepare` would use when None.

    `images`: a folder that gets copies of the screenshots; None refers to the run's own. Raises `UsageError` for an id
    that the run doesn't have, before anything is yielded.
    """
    store = ScreenshotStore(run.screenshots.resolve())
    locate = _copier(store, images) if images else lambda sha256: str(store.path(sha256))
    for trajectory in _chosen(run, settings, ids):
        for step in trajectory.steps:
            usable = step_drop(step, settings.algorithm_config) is None and safe_text(step.response) == step.response
            if usable:
                yield to_sharegpt(_sample(trajectory, step.index), locate)


def _chosen(run: RunDir, settings: Settings, ids: Iterable[str] | None) -> Iterator[Trajectory]:
    if ids is None:
        usable = (item for item in select(run, Query(split=Split.TRAIN)))
        return (item for item in usable if trajectory_drop(item, settings.algorithm_config) is None)
    wanted = list(dict.fromkeys(ids))
    known = {item.id for item in select(run, Query())}
    if missing := [name for name in wanted if name not in known]:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise UsageError(f"{run.root}: no trajectory {missing[0]!r}{more}", hint=f"webgym inspect-buffer {run.root} -q")
    return (item for item in select(run, Query()) if item.id in set(wanted))


def _sample(trajectory: Trajectory, index: int) -> Sample:
    prompt = render_step(trajectory, index)
    text = with_opening(trajectory.steps[index].response, thinking=trajectory.prompt.thinking)
    response = Message(role="assistant", content=text)
    return Sample(
        messages=(*prompt.messages, response),
        images=prompt.images,
        trajectory=trajectory.id,
        step=index,
        iteration=trajectory.iteration,
        reward=trajectory.outcome.reward or 0.0,
    )


def _copier(store: ScreenshotStore, folder: Path) -> Callable[[str], str]:
    def copy(sha256: str) -> str:
        target = folder.resolve() / f"{sha256}.png"
        try:
            if not target.exists():
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(store.path(sha256), target)
        except OSError as error:
            raise StoreError(f"{error.filename or target}: the screenshot can't be copied: {error.strerror}") from error
        return str(target)

    return copy
