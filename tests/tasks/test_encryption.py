"""Encrypted tasks: what is read, and who may."""

import hashlib
import json
from base64 import b64encode
from itertools import cycle

import pytest

from tests.tables import each
from webgym_cli.agent.prompt import Prompt, reveal_prompt
from webgym_cli.errors import UsageError
from webgym_cli.records.sample import Message
from webgym_cli.tasks.encryption import ENCRYPTED, decrypt, list_secrets
from webgym_cli.tasks.format import read_task
from webgym_cli.tasks.registry import BadTaskError
from webgym_cli.tasks.source import open_tasks

CANARY = "made by us, canary GUID 1"


def encrypt(text):
    """Encrypt as the authors of BrowseComp do."""
    key = hashlib.sha256(CANARY.encode()).digest()
    return b64encode(bytes(one ^ two for one, two in zip(text.encode(), cycle(key), strict=False))).decode()


def record(**changes):
    texts = {
        "instruction": f"{ENCRYPTED}{encrypt('Who painted it?')}",
        "reference_answer": f"{ENCRYPTED}{encrypt('é')}",
    }
    return {"environment": "web", "start_url": "https://a.test/", "canary": CANARY, **texts, **changes}


def test_a_text_is_as_the_published_cipher_has_it():
    first = hashlib.sha256(b"k").digest()[0]
    assert decrypt(ENCRYPTED + b64encode(bytes([first ^ ord("A")])).decode(), "k") == "A"
    long = "x" * 100
    assert decrypt(ENCRYPTED + encrypt(long), CANARY) == long


def test_the_texts_stay_encrypted_until_a_prompt_is_sent():
    task = read_task(record())
    assert "painted" not in task.model_dump_json()
    assert list_secrets(task) == {task.instruction: "Who painted it?", task.reference_answer: "é"}
    prompt = Prompt((Message(role="user", content=f"Task: {task.instruction}\n"),), ())
    revealed = reveal_prompt(prompt, task)
    assert (revealed.messages[0].content, revealed.private) == ("Task: Who painted it?\n", True)


@each(
    "changes",
    [
        {"instruction": "Who painted it?"},
        {"reference_answer": "é"},
        {"instruction": f"{ENCRYPTED}plain"},
        {"canary": "another"},
        {"rubric": ["It is found."]},
        {"check": "mine"},
        {"start_url": ""},
    ],
)
def test_a_canary_beside_plain_text_is_refused(changes):
    with pytest.raises(BadTaskError, match="canary"):
        read_task(record(**changes))


def test_only_an_evaluation_may_read_them(tmp_path):
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps(record()))
    assert len(open_tasks(str(file), encrypted=True)) == 1
    with pytest.raises(UsageError, match="forbid to train"):
        open_tasks(str(file))
