"""Recordings: what a person did on a page, with targets that are found again on another one."""

from __future__ import annotations

from webgym_cli.records.action import Action
from webgym_cli.records.base import Record


class RecordedTarget(Record):
    """The element that an action pointed at."""

    role: str = ""
    """Role and name of the element, as a policy sees it."""
    name: str = ""
    box: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """Left, top, width and height in CSS pixels; of several elements that are alike the nearest one is meant."""
    offset: tuple[float, float] | None = None
    """The point from the element's top left corner in CSS pixels; None: its centre."""
    selector: str = ""
    """Playwright's selector, in place of role and name."""


class RecordedAction(Record):
    """One line of a recording."""

    action: Action
    """The action as it was executed. Where it has a target, its own place is that of the recorded page."""
    target: RecordedTarget | None = None
    to_target: RecordedTarget | None = None
    """Where a drag ends."""
    path: tuple[tuple[float, float], ...] = ()
    """Points that a drag passes, from its start in CSS pixels."""
