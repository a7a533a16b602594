"""What all tests share."""

from __future__ import annotations

import hypothesis.internal.observability  # noqa: F401  its plugin imports it last, when Python 3.11 may refuse to
import pytest

pytest_plugins = ["tests.stack_fixtures"]


@pytest.fixture(scope="session", autouse=True)
def untracked():
    """Nothing goes to Weights & Biases; the tests of that say otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "disabled")
        yield


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """No setting of the person who runs the tests reaches them."""
    import os

    for name in list(os.environ):
        if name.startswith("WEBGYM_") and name != "WEBGYM_HOME":
            monkeypatch.delenv(name)
