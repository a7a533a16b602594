"""Fixtures for the tests that run the real vLLM and LLaMA-Factory."""

from pathlib import Path

import pytest

from webgym_cli.config.load import load
from webgym_cli.errors import RoleError
from webgym_cli.roles.locate import device, role_python
from webgym_cli.testing.tiny_model import build_tiny_model


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory):
    """Folder of a tiny Qwen3-VL."""
    needs("train")
    return build_tiny_model(tmp_path_factory.mktemp("tiny") / "model", load())


def needs(role: str) -> Path:
    """Return a role's interpreter; skip the test where the role has not been set up."""
    try:
        return role_python(load(), role)
    except RoleError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
async def policy_server(tiny_model_dir, tmp_path_factory):
    """One vLLM server for all tests; those that swap its weights put the old ones back."""
    from webgym_cli.serve.execute import PolicyServer
    from webgym_cli.serve.plan import plan_server

    python = needs("serve")
    settings = load(overrides=["serve.port=0", "serve.max_model_len=4096", "policy_config.max_new_tokens=256"])
    plan = plan_server(settings, str(tiny_model_dir), python, device(settings))
    server = PolicyServer(plan, tmp_path_factory.mktemp("serve"), lambda event: None)
    await server.start()
    yield server
    await server.stop()
