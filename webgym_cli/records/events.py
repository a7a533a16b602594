"""How stages tell what happens: events, which the command line shows as bars, lines or JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Event = dict[str, Any]
"""One event: `event` is its name, the other keys are its facts (snake_case, only ever added to).

One whose `transient` is true is only for a live board: it is neither written to stdout nor kept in a log."""

EventSink = Callable[[Event], None]
"""Takes the events of a stage, in order."""
