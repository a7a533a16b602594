"""A policy server that turns the dial to its goal at once in every second episode, and answers in the others.

As vLLM does, it gives the token ids of prompt and response by the model's own tokenizer.
"""

import base64
import itertools
import json
import re
from contextlib import contextmanager
from io import BytesIO

from PIL import Image

from tests.json_server import completion, serve_json
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.testing.tiny_model_build import END


def _read(messages):
    """Return the prompt's messages and its images' sizes."""
    texts, sizes = [], []
    for message in messages:
        parts = message["content"]
        for part in parts if isinstance(parts, list) else ():
            if part["type"] == "image_url":
                with Image.open(BytesIO(base64.b64decode(part["image_url"]["url"].partition(",")[2]))) as image:
                    sizes.append(image.size)
        text = parts if isinstance(parts, str) else "".join(part.get("text", IMAGE) for part in parts)
        texts.append(Message(role=message["role"], content=text))
    return texts, sizes


def find_goal(body):
    return int(re.findall(r"Turn it to (\d+)", json.dumps(body["messages"]))[-1])


def answer(tokens, body, *, solves, beside=""):
    """Return the answer to a chat, with a call that turns the dial to its goal or without; `beside`: text before it."""
    messages, sizes = _read(body["messages"])
    call = {"name": "turn", "arguments": {"by": find_goal(body)}}
    turn = f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
    text = beside + (turn if solves else "It is done.")
    ids = [*tokens.response_ids(text), tokens.tokenizer.token_to_id(END)]
    logprobs = {"content": [{"token": "x", "logprob": -7.0, "top_logprobs": []} for _ in ids]}
    done = completion(text, token_ids=ids, logprobs=logprobs)
    return {**done, "prompt_token_ids": tokens.prompt_ids(messages, sizes)}


@contextmanager
def serve_policy(model, *, by_task=False):
    """Give the base URL of a server, for the time of the block. `by_task`: it solves the tasks with even goals."""
    tokens, numbers = ModelTokens(str(model)), itertools.count()

    def decide(request, content):
        if request.command == "GET":
            return 200, {"version": "0.32.0", "data": [{"id": "policy"}]}
        body = json.loads(content)
        number = find_goal(body) if by_task else next(numbers)
        return 200, answer(tokens, body, solves=number % 2 == 0)

    with serve_json(decide) as address:
        yield f"{address}/v1"
