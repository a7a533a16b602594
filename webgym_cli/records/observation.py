"""What a policy receives before it responds: a screenshot, the page's elements and tabs, results of tools."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import Field

from webgym_cli.records.action import NORMALISED
from webgym_cli.records.base import Record


class Element(Record):
    """One listed page element that the policy can act on."""

    id: int = Field(ge=0)
    """The number drawn on the screenshot; counts from 0 in document order."""
    role: str
    """Role by the accessibility specifications: button, link, textbox, ...; `generic` for none."""
    name: str = ""
    """Accessible name, one line; without one, a name derived from its icon, class or surroundings."""
    value: str = ""
    """Current value: the typed text, `checked`, the selected option."""
    box: tuple[float, float, float, float]
    """Left, top, width, height in CSS pixels of the viewport."""
    states: tuple[str, ...] = ()
    """States that the value does not tell: `disabled`, `required`, `unchecked`, `options: ...`; empty in older runs."""

    def point_at(self, position: tuple[float, float]) -> tuple[float, float]:
        """Return the point in CSS pixels at a position in the box, 0 to its last pixel at 1000 on both axes."""
        left, top, width, height = self.box
        x, y = position[0] / NORMALISED * width, position[1] / NORMALISED * height
        return left + min(x, width - 1), top + min(y, height - 1)


class Screenshot(Record):
    """Reference to a stored image by the SHA-256 of its content."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    width: int = Field(gt=0)
    """Pixels."""
    height: int = Field(gt=0)
    """Pixels."""


class ToolResult(Record):
    """The result of one tool call."""

    name: str
    """Name of the called tool, as the policy wrote it."""
    text: str
    """The result that the policy received."""
    image: Screenshot | None = None
    """The image that the policy received with the text."""
    error: bool = False
    """Whether the call failed: unknown tool, wrong arguments, exception, timeout. Not a `failure` of the episode."""


class Tab(Record):
    """An open tab of the browser."""

    url: str
    title: str = ""
    current: bool = False
    """Whether this tab is shown."""


class ScrollExtent(Record):
    """How far something on the page can be scrolled, in its own heights."""

    name: str = ""
    """Name or role of a container; empty for the page."""
    above: float = 0.0
    below: float = 0.0


class PageState(Record):
    """The page at the moment of an observation."""

    loading: Literal["settled", "timed_out", "moving"] = "settled"
    """`timed_out`: it was still loading when the wait ended; `moving`: it looked different each time."""
    pending: int = 0
    """Number of requests that had not ended."""
    console_errors: int = 0
    """Number of errors on the console since the observation before."""
    status: int | None = None
    """HTTP status of the newest document; null: unknown."""
    scrolls: tuple[ScrollExtent, ...] = ()
    """The page, then the largest containers in sight that can be scrolled."""
    outside: int = 0
    """Number of links, buttons and fields of the document that lie outside the viewport."""

    @property
    def is_stable(self) -> bool:
        """Whether the page was at rest, and its document no error of its server."""
        return self.loading == "settled" and (self.status or 0) < 400


class Observation(Record):
    """What the policy received before it responded."""

    url: str
    title: str = ""
    screenshot: Screenshot | None = None
    """The image that was sent to the policy (with marks in set_of_marks mode); with `webrl` for judges only."""
    elements: tuple[Element, ...] = ()
    """The marked elements; empty in coordinates mode."""
    notices: tuple[str, ...] = ()
    """Messages of the browser: dialogs that were answered, downloads that were refused."""
    results: tuple[ToolResult, ...] = ()
    """Results of the previous step's tool calls, in order; in the first step the images of a question."""
    html: str = ""
    """The page as simplified HTML, with the ids of `elements`; empty except for the prompt version `webrl`."""
    tabs: tuple[Tab, ...] = ()
    """The open tabs in the order in which they were opened; empty if there is only one."""
    tree: str = ""
    """The page as an accessibility tree, if the policy gets one (`context_config.observation=tree`)."""
    state: PageState | None = None
    """How far the page had loaded and can be scrolled; null in older runs, imports and other environments."""
    digest: str = ""
    """SHA-256 of URL, title, elements and screenshot, which belong to one moment; empty in older runs and imports."""

    def compute_digest(self) -> str:
        """Return what `digest` must be."""
        parts: dict[str, Any] = {"url": True, "title": True, "elements": True, "screenshot": {"sha256"}}
        content = self.model_dump_json(include=parts, exclude_defaults=True)  # later fields must not change it
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def pictures(self) -> tuple[Screenshot, ...]:
        """All images of the observation: the screenshot and those of results."""
        return tuple(filter(None, (self.screenshot, *(result.image for result in self.results))))
