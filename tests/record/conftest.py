"""What the tests of pages share."""

from tests.own_pages import chromium

__all__ = ["chromium"]
