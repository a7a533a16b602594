"""What the tests of policy-gradient data share: the model's tokenizer."""

import pytest

from webgym_cli.agent.tokens.tokens import ModelTokens


@pytest.fixture(scope="package")
def tokens(model):
    return ModelTokens(str(model))
