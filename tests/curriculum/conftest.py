"""The scripted judge that the tests of this folder ask."""

from tests.rewards.conftest import server

__all__ = ["server"]
