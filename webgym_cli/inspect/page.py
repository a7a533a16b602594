"""HTML page of an episode, with the screenshot, action and prompt of every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webgym_cli.agent.forms.tools import describe_action
from webgym_cli.agent.prompt import Prompt, render_step, split_at_images
from webgym_cli.agent.prompts.prompt_template import format_element
from webgym_cli.errors import StoreError
from webgym_cli.inspect.episode import EpisodeView, list_verdicts, split_thought
from webgym_cli.records.action import NORMALISED, Action
from webgym_cli.records.trajectory import Element, Screenshot, Step, Trajectory
from webgym_cli.store.screenshots import ScreenshotStore, data_url
from webgym_cli.util.html_page import render_page
from webgym_cli.util.optional import when


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
