"""What the tests of policy-gradient data share: a model's tokenizer, and a run."""

import pytest

from tests.prepare.rl_builders import build_model
from webgym_cli.agent.tokens.tokens import ModelTokens


@pytest.fixture(scope="package")
def model(tmp_path_factory):
    return build_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="package")
def tokens(model):
    return ModelTokens(str(model))
