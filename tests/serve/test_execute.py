"""The server at work: what goes wrong before it is up, and the real vLLM with a tiny model."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import openai
import psutil
import pytest

from webgym_cli.config.load import load
from webgym_cli.errors import JobError, SettingsError, UsageError
from webgym_cli.jobs.guard import descendants
from webgym_cli.serve.client import ServerClient, known_image
from webgym_cli.serve.execute import PolicyServer
from webgym_cli.serve.failure import reason
from webgym_cli.serve.plan import plan_server
from webgym_cli.serve.weights import digest

PATIENCE = 60


class ReloadsNothing(ServerClient):
    """Says that it loaded the weights, like a server with a stale cache."""

    async def reload_weights(self, folder: str, deadline: float) -> None:
        del folder, deadline


def gone(pids):
    """Wait until none of these processes runs, and return those that still do."""
    deadline = time.monotonic() + PATIENCE
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def chat(server, **more):
    """Ask about an image, greedily unless told otherwise, and return the whole answer."""
    parts = [{"type": "image_url", "image_url": {"url": known_image()}}, {"type": "text", "text": "Click it."}]
    request = {"model": server.plan.served_name, "max_tokens": 12, "temperature": 0, "logprobs": True} | more
    extra = {"return_token_ids": True} | request.pop("extra_body", {})
    async with openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        return await client.chat.completions.create(
            messages=[{"role": "user", "content": parts}], extra_body=extra, **request
        )


def said(answer):
    """Return what weights decide about an answer."""
    return answer.choices[0].token_ids, [round(token.logprob, 3) for token in answer.choices[0].logprobs.content]


@pytest.fixture
def model_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def pretend(tmp_path, model_folder):
    """Returns how to make a server whose interpreter is a shell script."""

    def make(script, *overrides, model=model_folder, sink=lambda event: None):
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        settings = load(overrides=["serve.port=0", "serve.stop_grace=1", *overrides])
        return PolicyServer(plan_server(settings, str(model), python, "cpu"), tmp_path / "logs", sink)

    return make


async def test_a_port_in_use_is_noticed_before_anything_starts(pretend):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = pretend("exit 0", f"serve.port={port}")
        with pytest.raises(UsageError, match=f"port {port} of 127.0.0.1 is in use") as caught:
            await server.start()
    assert "serve.port=0" in caught.value.hint
    assert not server.log.exists()


async def test_a_wrong_model_is_refused(pretend, tmp_path):
    (tmp_path / "empty").mkdir()
    for model, message in (("nowhere", "no such model folder"), ("empty", "config.json is missing")):
        with pytest.raises(SettingsError, match=message):
            await pretend("exit 0", model=tmp_path / model).start()


async def test_a_start_that_dies_tells_why(pretend):
    script = 'echo "(APIServer pid=7) Traceback (most recent call last):"; echo "ValueError: no such device"; exit 3'
    server = pretend(script)
    with pytest.raises(JobError, match="exit status 3: ValueError: no such device") as caught:
        await server.start()
    assert str(server.log) in str(caught.value)
    assert caught.value.exit_code == 4
    assert server.pid is None


async def test_a_start_that_takes_too_long_is_ended(pretend):
    events = []
    server = pretend("echo loading; exec sleep 100", "serve.startup_timeout=2", sink=events.append)
    with pytest.raises(JobError, match="not healthy after 2 s: loading"):
        await server.start()
    assert server.pid is None
    assert {"event": "serve", "bar": "vllm", "total": 2, "facts": "loading"}.items() <= events[-1].items()


async def test_a_cancelled_start_leaves_nothing(pretend):
    server = pretend("sleep 100 & sleep 100")
    start = asyncio.ensure_future(server.start())
    while server.pid is None or len(descendants(server.pid)) < 2:
        await asyncio.sleep(0.05)
    tree = [server.pid, *descendants(server.pid)]
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert gone(tree) == []
    await server.stop()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["(EngineCore pid=2) ERROR 01-02 10:00:00 [core.py:9] OSError: bad weights"]
            + ["(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."],
            "OSError: bad weights",
        ),
        (
            ["pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig", "  Value error, x"],
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig: Value error, x",
        ),
        (["usage: a", "api_server.py: error: unrecognized arguments: --foo"], "api_server.py: error: unrecognized"),
        (["only this"], "only this"),
        ([], "it wrote nothing"),
    ],
)
def test_the_reason_is_the_cause_and_no_echo(tmp_path, lines, expected):
    (tmp_path / "log").write_text("\n".join(lines))
    assert reason(tmp_path / "log").startswith(expected)


def test_a_digest_is_that_of_the_weights(model_folder):
    before = digest(str(model_folder))
    (model_folder / "config.json").write_text('{"a": 1}')
    assert digest(str(model_folder)) == before
    (model_folder / "model.safetensors").write_bytes(b"Weights")
    assert digest(str(model_folder)) != before
    assert digest("owner/name") == "hub:owner/name"
