"""One episode with its judgements, and its HTML page with the screenshot, action and prompt of every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webgym_cli.agent.forms.reasoning import CLOSE, strip_reasoning
from webgym_cli.agent.forms.tools import describe_action
from webgym_cli.agent.prompt import Prompt, render_step, split_at_images
from webgym_cli.agent.prompts.prompt_template import format_element
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.action import NORMALISED, Action
from webgym_cli.records.judgement import Judgement, Verdict
from webgym_cli.records.trajectory import Element, Screenshot, Step, Trajectory
from webgym_cli.store.buffer import LineRef, read, read_judgement
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore, data_url
from webgym_cli.util.html_page import render_page
from webgym_cli.util.optional import when


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """A trajectory and its judgements."""

    trajectory: Trajectory
    """The trajectory with its effective judgement."""
    judgements: tuple[Judgement, ...] = ()
    """Oldest first."""

    def to_json(self) -> dict[str, Any]:
        """Return the trajectory's record with its `judgements`."""
        judgements = [judgement.model_dump(mode="json", by_alias=True) for judgement in self.judgements]
        return {**self.trajectory.model_dump(mode="json", by_alias=True), "judgements": judgements}


def read_episodes(run: RunDir, index: Index, names: Sequence[str]) -> Iterator[EpisodeView]:
    """Yield the trajectories with these ids, in order; only their own lines are read.

    Raises `UsageError` for an unknown id before the first one is yielded, and `StoreError`.
    """
    for name in names:
        if not index.one("SELECT count(*) AS found FROM stored WHERE id = ?", [name])["found"]:
            raise _unknown(run, index, name)
    for name in names:
        for place in index.places("id = ?", [name]):
            yield read_episode(run, index, place)


def read_episode(run: RunDir, index: Index, line: LineRef) -> EpisodeView:
    """Return one episode. Raises `StoreError`."""
    trajectory = read(run, line)
    return EpisodeView(trajectory, tuple(_judgements(run, index, trajectory)))


def list_verdicts(judgement: Judgement) -> Iterator[tuple[str, Verdict]]:
    """Yield each verdict with its criterion, in the order of evaluation."""
    if judgement.claims is not None:
        yield "claims", judgement.claims
    yield from (("fact", fact) for fact in judgement.facts)
    if judgement.reference is not None:
        yield "reference", judgement.reference


def split_thought(step: Step, *, thinking: bool) -> tuple[str, str]:
    """Return a response's reasoning and the rest. One with an action and no closed reasoning has none."""
    is_open = step.action is None or CLOSE in step.response
    rest = strip_reasoning(step.response, thinking=thinking and is_open)
    return step.response.removesuffix(rest), rest


def _judgements(run: RunDir, index: Index, trajectory: Trajectory) -> Iterator[Judgement]:
    rows = index.rows(
        "SELECT file, start, size FROM judgements WHERE trajectory = ? AND split = ? AND iteration = ? "
        "ORDER BY judged_at, file, start",
        [trajectory.id, trajectory.split.value, trajectory.iteration],
    )
    for row in rows:
        yield read_judgement(run, row["file"], row["start"], row["size"])


def _unknown(run: RunDir, index: Index, name: str) -> UsageError:
    nearest = list(index.rows("SELECT id FROM stored ORDER BY jaro_winkler_similarity(id, ?) DESC, id LIMIT 1", [name]))
    guess = f"; did you mean {nearest[0]['id']}?" if nearest else ""
    return UsageError(f"{run.root}: no trajectory {name!r}{guess}", hint=f"webgym inspect-buffer {run.root} -q")


def render_episode_page(
    view: EpisodeView,
    store: ScreenshotStore,
    label: Mapping[str, Any] | None = None,
    links: Mapping[str, str] | None = None,
) -> bytes:
    """Return the page in UTF-8. A missing screenshot is named instead.

    `label`: facts of the person who labels the episode, with whose form the page shows no reward and no verdict.
    `links`: addresses of the viewer's pages: `back`, and the episodes `before` and `after`.
    """
    command = "view" if links else "show"
    return render_page(
        Path(__file__).parent,
        "episode.html",
        "label" if label else command,
        style="episode.css",
        script=when(label or links, "keys.js"),
        label=label,
        links=links,
        told=view,
        trajectory=view.trajectory,
        judgements=[(judgement, list(list_verdicts(judgement))) for judgement in reversed(view.judgements)],
        steps=list(_build_step_views(view.trajectory, store)),
    )


def describe_step_action(step: Step) -> str:
    """Return a step's action with its target element; empty without an action."""
    if step.action is None:
        return ""
    element = find_target(step)
    return describe_action(step.action) + (f" - {format_element(element)}" if element else "")


def _build_step_views(trajectory: Trajectory, store: ScreenshotStore) -> Iterator[dict[str, Any]]:
    """Yield the template values of each step."""
    for step in trajectory.steps:
        image, missing = _load_image(step.observation.screenshot, store)
        thought, rest = split_thought(step, thinking=trajectory.prompt.thinking)
        prompt = render_step(trajectory, step.index)
        pictures = _name_pictures(trajectory, step, prompt)
        turns = [
            (message.role, [next(pictures) if text is None else text for text in split_at_images(message)])
            for message in prompt.messages
        ]
        yield {
            "step": step,
            "image": image,
            "missing": missing,
            "results": [(result, *_load_image(result.image, store)) for result in step.observation.results],
            "mark": locate_marker(step),
            "action": describe_step_action(step),
            "thought": thought.strip(),
            "rest": rest.strip(),
            "prompt": turns,
            "as_sent": prompt.digest == step.prompt_digest,
        }


def _name_pictures(trajectory: Trajectory, step: Step, prompt: Prompt) -> Iterator[str]:
    """Return labels of a prompt's images, in order."""
    if trajectory.prompt.tools is not None:
        return (f"[image {number}]" for number in range(1, len(prompt.images) + 1))
    return (f"[screenshot of step {number}]" for number in range(step.index + 1 - len(prompt.images), step.index + 1))


def _load_image(shot: Screenshot | None, store: ScreenshotStore) -> tuple[str, str]:
    """Return an image as a data URL, or the reason why it can't be shown; both empty if there is none."""
    if shot is None:
        return "", ""
    try:
        content = store.get(shot.sha256)
    except StoreError as error:
        return "", str(error)
    return data_url(content), ""


@dataclass(frozen=True, slots=True)
class ActionMarker:
    """Marker on a step's screenshot, in its pixels."""

    x: float
    """The point, or the left edge of the box."""
    y: float
    """The point, or the top edge of the box."""
    width: float = 0.0
    """0 for a point."""
    height: float = 0.0
    """0 for a point."""

    @property
    def is_box(self) -> bool:
        """Whether the marker is an element's box rather than a point."""
        return self.width > 0 or self.height > 0


def find_target(step: Step) -> Element | None:
    """Return the listed element that a step's action referred to, or None."""
    if step.action is None or step.action.element_id is None:
        return None
    return next((element for element in step.observation.elements if element.id == step.action.element_id), None)


def locate_marker(step: Step) -> ActionMarker | None:
    """Return the marker of a step's action; None if it had no target, or one that was not listed."""
    size = step.observation.screenshot
    if size is None:
        return None
    if isinstance(step.action, Action) and step.action.coordinate is not None:
        x, y = step.action.coordinate
        return ActionMarker(x / NORMALISED * size.width, y / NORMALISED * size.height)
    if (element := find_target(step)) is None:
        return None
    if isinstance(step.action, Action) and step.action.position:
        return ActionMarker(*element.point_at(step.action.position))
    left, top, width, height = element.box
    x, y = min(max(left, 0.0), size.width), min(max(top, 0.0), size.height)
    return ActionMarker(x, y, max(1.0, min(left + width, size.width) - x), max(1.0, min(top + height, size.height) - y))
