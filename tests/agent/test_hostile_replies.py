"""Long hostile replies are read in linear time: what takes quadratic time on one of them takes minutes."""

import pytest

from tests.tables import each
from webgym_cli.agent.actions.action_sets import ACTION_SETS, CALL_FORMATS
from webgym_cli.agent.actions.parse import ParseError
from webgym_cli.agent.client.chat import JudgeReply, UnreadableError, read_object
from webgym_cli.agent.forms.reasoning import history_text, strip_reasoning
from webgym_cli.agent.prompts.memory_prompt import read_sections
from webgym_cli.records.trajectory import Observation, PromptSpec, Step
from webgym_cli.rewards.judge.prompts import _describe_step
from webgym_cli.scoring.text import format_reward, qa_em_reward
from webgym_cli.tools.builtin import calculator
from webgym_cli.tools.python import python
from webgym_cli.util.text import hide_passwords

LENGTH = 300_000
PIECES = [
    "<tool_call>",
    "</tool_call>",
    "<tool_call></tool_call>",
    "<tool_call>{",
    '<tool_call>{"name": "',
    '<tool_call>{"name":"calculator","arguments":{}}',
    "<think>",
    "</think>",
    "<think></think>",
    "<answer>",
    "</answer>",
    "```python\n",
    "```python\nx\n",
    "```\n",
    "````python\n```\n",
    "Action:\n",
    "Action: calculator\n",
    "Action: calculator\nAction Input:{\n",
    "Observation:\n",
    "Final Answer:",
    "Memory:\n",
    "\\boxed{",
    '{"a":',
    " ",
    "\n",
    "`",
    "*",
    "a.",
    "a://b@",
]


def as_texts(*pieces):
    return [piece * (LENGTH // len(piece)) for piece in pieces]


def parsers():
    schemas = (calculator.schema, python.schema)
    for name in ("hermes", "qwen", "react", "code"):
        yield CALL_FORMATS.find(name), PromptSpec(tools=schemas, call_format=name)
    for name in ("vanilla", "full", "computer_use", "ui_tars", "webrl"):
        yield ACTION_SETS.find(name), PromptSpec(version=name)


@each("piece", PIECES)
def test_a_long_reply_is_read(piece):
    (text,) = as_texts(piece)
    for action_set, spec in parsers():
        for thinking in (False, True):
            read = action_set.parse(text, spec.model_copy(update={"thinking": thinking}), truncated=False, max_calls=4)
            assert isinstance(read, ParseError) or read.name == "answer"
    assert len(strip_reasoning(text, thinking=False)) <= LENGTH
    assert len(history_text(text, thinking=False)) <= LENGTH


@each("piece", PIECES)
def test_a_long_reply_is_scored_and_shown(piece):
    (text,) = as_texts(piece)
    assert qa_em_reward(text, "Paris")["reward"] == 0
    assert format_reward(text) == 0
    with pytest.raises(UnreadableError):
        read_object(text, JudgeReply)
    read_sections.__wrapped__(f"Memory: x{text}x")
    step = Step(index=0, observation=Observation(url=""), response=text, parse_error="no_tool_call", prompt_digest="")
    assert len(_describe_step(step).get("note", "")) < 1000
    assert len(hide_passwords(f"{text}@")) <= LENGTH + 1
