"""What the tests of pages share."""

from tests.own_pages import chromium, view

__all__ = ["chromium", "view"]
