import json

import pytest

from webgym_cli.serve import execute
from webgym_cli.serve.fleet import Fleet


@pytest.fixture
def behave(tmp_path):
    """Tell the servers how to behave from now on."""
    return lambda **how: (tmp_path / "behave.json").write_text(json.dumps(how))


@pytest.fixture
async def open_fleet(tmp_path, monkeypatch):
    """Returns how to make the servers of plans; `events` is what they tell."""
    monkeypatch.setattr(execute, "POLL_SECONDS", 0.02)
    fleets = []

    def make(plans, **more):
        events = []
        fleets.append(Fleet(plans, tmp_path / "logs", events.append, **more))
        fleets[-1].events = events
        return fleets[-1]

    yield make
    for one in fleets:
        await one.stop()
