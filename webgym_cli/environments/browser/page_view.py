"""`PageView`: a page as a check may read it, from sync and from async code."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

# Attributes of Playwright's pages, frames and locators that change nothing, and those that return another of them.
_READS = {
    *("url", "title", "content", "evaluate", "text_content", "inner_text", "inner_html", "input_value", "count"),
    *("get_attribute", "is_visible", "is_hidden", "is_checked", "is_enabled", "is_disabled", "is_editable"),
    *("all", "all_inner_texts", "all_text_contents", "evaluate_all", "bounding_box", "aria_snapshot"),
    *("locator", "frame_locator", "get_by_role", "get_by_text", "get_by_label", "get_by_test_id", "get_by_title"),
    *("get_by_placeholder", "get_by_alt_text", "first", "last", "nth", "filter", "and_", "or_"),
}


class PageView:
    """A page or a locator of Playwright's async API, without what acts.

    A call from a thread waits for the result and returns it; in the event loop it returns an awaitable.
    """

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        """Return what reads; raises `AttributeError` for anything else."""
        if name not in _READS:
            raise AttributeError(f"page.{name}: a check only reads the page ({', '.join(sorted(_READS))})")
        value = getattr(self._target, name)
        return self._call(value) if inspect.ismethod(value) else self._view(value)

    def _call(self, method: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            plain = [one._target if isinstance(one, PageView) else one for one in arguments]
            value = method(*plain, **named)
            return self._wait(value) if inspect.isawaitable(value) else self._view(value)

        return call

    def _wait(self, value: Awaitable[Any]) -> Any:
        async def read() -> Any:
            return self._view(await value)

        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a sync check, in its thread
            return asyncio.run_coroutine_threadsafe(read(), self._loop).result()
        return read()

    def _view(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._view(one) for one in value]
        return PageView(value, self._loop) if hasattr(value, "get_by_role") else value
