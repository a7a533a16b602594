"""The last page of an episode, and what its set-up returned, as its check saw them."""

from __future__ import annotations

from typing import Any

from webgym_cli.records.base import Record


class FinalState(Record):
    """What a check can see of an episode once its page is closed."""

    url: str = ""
    """Address of the last page; empty without one."""
    title: str = ""
    text: str | None = None
    """Visible text of the last page, up to 100,000 characters; None: there is no page, or it could not be read."""
    state: Any = None
    """JSON value that the reset of the site, or the set-up function, returned as `state`."""
