"""The names in the table of families are LLaMA-Factory's and vLLM's own."""

import json

import pytest

from tests.config.test_model_families import HUB
from webgym_cli.config.model_families import FAMILIES

pytestmark = pytest.mark.stack

_TEMPLATES = """
import json
from llamafactory.data.template import TEMPLATES, ReasoningTemplate
from llamafactory.extras.constants import DEFAULT_TEMPLATE, SUPPORTED_MODELS, DownloadSource
ids = {sources[DownloadSource.DEFAULT]: DEFAULT_TEMPLATE[name] for name, sources in SUPPORTED_MODELS.items()
       if DownloadSource.DEFAULT in sources and name in DEFAULT_TEMPLATE}
print(json.dumps({"templates": list(TEMPLATES), "models": ids}))
"""
_PARSERS = "import json; from vllm.reasoning import ReasoningParserManager as m; print(json.dumps(m.list_registered()))"


def test_templates_are_llamafactorys_and_the_ones_it_takes_itself(in_train_role):
    result = json.loads(in_train_role("-c", _TEMPLATES).splitlines()[-1])
    ours = {template for family in FAMILIES for template in (family.template, family.thinking_template) if template}
    assert ours <= set(result["templates"])
    named = [(model, template) for model, template, _ in HUB if model in result["models"]]
    assert len(named) >= 18
    assert named == [(model, result["models"][model]) for model, _ in named]


def test_parsers_are_vllms(in_serve_role):
    known = json.loads(in_serve_role("-c", _PARSERS).splitlines()[-1])
    assert {family.reasoning_parser for family in FAMILIES} - {""} <= set(known)
