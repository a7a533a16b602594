import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from webgym_cli.environments.webarena.fuzzy_judge import VERDICT_SCHEMA, FuzzyVerdict, fuzzy_messages
from webgym_cli.environments.webarena.text_match import FuzzyQuestion


def test_the_schema_is_that_of_a_verdict():
    fields = VERDICT_SCHEMA["properties"]
    assert set(fields) == set(VERDICT_SCHEMA["required"]) == set(FuzzyVerdict.model_fields)
    for verdict in fields["verdict"]["enum"]:
        assert FuzzyVerdict(reason="x", verdict=verdict).verdict == verdict
    with pytest.raises(ValidationError):
        FuzzyVerdict(reason="x", verdict="partly right")


@given(*[st.text()] * 3)
def test_a_question_stays_in_its_json(intent, reference, answer):
    system, user = fuzzy_messages(FuzzyQuestion("same", intent, reference, answer))
    assert "<" not in user["content"]
    clean = [text.encode(errors="replace").decode() for text in (intent, reference, answer)]
    assert list(json.loads(user["content"]).values()) == clean
    assert system["role"] == "system"


def test_the_two_questions_are_put_differently():
    same, not_done = (
        fuzzy_messages(FuzzyQuestion(kind, "i", "r", "a"))[0]["content"] for kind in ("same", "unachievable")
    )
    assert same != not_done
    assert "can't be done" in not_done
