"""Markers that show where an action pointed on a screenshot. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from webgym_cli.records.action import NORMALISED, Action
from webgym_cli.records.trajectory import Element, Step


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
    left, top, width, height = element.box
    x, y = min(max(left, 0.0), size.width), min(max(top, 0.0), size.height)
    return ActionMarker(x, y, max(1.0, min(left + width, size.width) - x), max(1.0, min(top + height, size.height) - y))
