import json

import pytest


@pytest.fixture
def behave(tmp_path):
    """Tell the servers how to behave from now on."""
    return lambda **how: (tmp_path / "behave.json").write_text(json.dumps(how))
