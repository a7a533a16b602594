"""The server at work: what goes wrong before it is up, and the real vLLM with a tiny model."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import openai
import pytest

from tests.executable import wait_until_gone
from tests.serve.fakes import fake_python, weights
from webgym_cli.config.load import load
from webgym_cli.errors import JobError, SettingsError, UsageError
from webgym_cli.jobs.guard import descendants
from webgym_cli.serve import execute
from webgym_cli.serve.client import Fingerprint, ServerClient, known_image
from webgym_cli.serve.execute import PolicyServer
from webgym_cli.serve.failure import reason
from webgym_cli.serve.plan import plan_servers
from webgym_cli.serve.weights import digest, tied_embeddings
from webgym_cli.util.files import write_json

PATIENCE = 60


class ReloadsNothing(ServerClient):
    """Says that it loaded the weights, like a server with a stale cache."""

    async def reload_weights(self, folder: str, deadline: float) -> None:
        del folder, deadline


def wait_until(happened):
    """Wait for something, within the patience of these tests."""
    deadline = time.monotonic() + PATIENCE
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.05)


async def chat(server, **more):
    """Ask about an image, greedily unless told otherwise, and return the whole answer."""
    parts = [{"type": "image_url", "image_url": {"url": known_image()}}, {"type": "text", "text": "Click it."}]
    name = server.plan.serve.served_model_name
    request = {"model": name, "max_tokens": 12, "temperature": 0, "logprobs": True} | more
    extra = {"return_token_ids": True} | request.pop("extra_body", {})
    async with openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        return await client.chat.completions.create(
            messages=[{"role": "user", "content": parts}], extra_body=extra, **request
        )


def decided_by_weights(answer):
    """Return what weights decide about an answer."""
    return answer.choices[0].token_ids, [round(token.logprob, 3) for token in answer.choices[0].logprobs.content]


@pytest.fixture
def model_folder(tmp_path):
    return Path(weights(tmp_path / "model", b"one"))


@pytest.fixture
def pretend(tmp_path, model_folder):
    """Returns how to make a server whose interpreter is a shell script."""

    def make(script, *overrides, model=model_folder, sink=lambda event: None):
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        settings = load(overrides=["serve.port=0", *overrides])
        return PolicyServer(plan_servers(settings, str(model), python, "cpu")[0], tmp_path / "logs", sink)

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
    model = tmp_path / "run" / "checkpoints" / "model_1"
    for folder in (tmp_path / "run", model):
        write_json(folder / "config.json", {})
    (model / "model.safetensors").touch()
    (tmp_path / "run" / "model.pt").symlink_to(model)  # named like a weight file
    wrong = {"nowhere": "init-model", "empty": "init-model", "run": "/run/model.pt", "run/checkpoints": "/model_1"}
    for name, hint in wrong.items():
        with pytest.raises(SettingsError) as caught:
            await pretend("exit 0", model=tmp_path / name).start()
        assert hint in caught.value.hint


async def test_a_start_that_dies_tells_why(pretend):
    script = 'echo "(APIServer pid=7) Traceback (most recent call last):"; echo "ValueError: no such device"; exit 3'
    server = pretend(script)
    with pytest.raises(JobError, match=r"exit status 3: ValueError: no such device; log: .*vllm\.log") as caught:
        await server.start()
    assert (caught.value.exit_code, server.pid) == (4, None)


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
    await asyncio.to_thread(wait_until, lambda: server.pid is not None and len(descendants(server.pid)) >= 2)
    tree = [server.pid, *descendants(server.pid)]
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert wait_until_gone(tree)
    await server.stop()


_CORE = "(EngineCore pid=2) ERROR 01-02 10:00:00 [core.py:9] OSError: bad weights"
_API = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."
_ERROR = "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig"
_GCC = "subprocess.CalledProcessError: Command '['/usr/bin/gcc']' returned non-zero exit status 1."


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([_CORE, _API], "OSError: bad weights"),
        (["ValueError: a", _CORE, "RuntimeError: Failed. See root cause above."], "OSError: bad weights"),
        ([_CORE, "RuntimeError: Engine core initialization failed"], "OSError: bad weights"),
        ([_CORE, "vllm.v1.engine.exceptions.EngineDeadError: it stopped"], "OSError: bad weights"),
        ([_CORE, "ChildProcessError: [Errno 10] No child processes"], "OSError: bad weights"),
        (["ImportError: no flash_attn, going on", f"(EngineCore pid=2) {_GCC}", _API], _GCC),
        ([f"torch._inductor.exc.InductorError: {_GCC}", _API], "torch._inductor.exc.InductorError: "),
        (["[rank0]: RuntimeError: CUDA error", "(EngineCore pid=1) shutting down"], "RuntimeError: CUDA error"),
        ([_ERROR, "  Value error, x"], f"{_ERROR}: Value error, x"),
        (
            ["usage: a", "api_server.py: error: unrecognized arguments: --foo", "b"],
            "api_server.py: error: unrecognized",
        ),
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


def test_on_a_cpu_equal_checksums_hide_no_changed_linear_layers():
    before, near, far = (Fingerprint((1,), (value,), {"norm.weight": "a"}) for value in (-1.0, -1.0005, -1.5))
    assert [one.differs(before, complete=False) for one in (before, near, far)] == [False, False, True]
    assert not far.differs(before, complete=True)


@pytest.mark.parametrize(
    ("tensor", "config", "tied"),
    [
        ("lm_head.weight", {}, False),
        ("lm_head.weight", {"tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True}}, True),
        ("model.embed_tokens.weight", {"tie_word_embeddings": False}, True),
    ],
)
def test_tied_embeddings_are_seen_in_config_and_weights(model_folder, tensor, config, tied):
    header = json.dumps({tensor: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).encode()
    (model_folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (model_folder / "config.json").write_text(json.dumps(config))
    assert tied_embeddings(str(model_folder)) is tied


@pytest.mark.stack
async def test_an_image_is_answered_with_token_ids_and_logprobs(policy_server):
    answer = await chat(policy_server, temperature=1, top_p=0.99, extra_body={"top_k": 2})
    ids, content = answer.choices[0].token_ids, answer.choices[0].logprobs.content
    assert len(ids) == len(content) == answer.usage.completion_tokens
    assert len(answer.prompt_token_ids) == answer.usage.prompt_tokens
    # a tiny model is far from sure: over the whole vocabulary each token would be at most some per cent likely
    assert all(token.logprob > -5 for token in content)
    assert decided_by_weights(await chat(policy_server)) == decided_by_weights(await chat(policy_server))


@pytest.mark.stack
async def test_a_swap_that_did_nothing_is_caught_and_made_good(policy_server, second_model_dir, monkeypatch):
    events, stops = [], []
    first, tree = policy_server.model, [policy_server.pid, *descendants(policy_server.pid)]
    before = decided_by_weights(await chat(policy_server))
    stop = policy_server.stop

    async def timed_stop():
        began = time.monotonic()
        await stop()
        stops.append(time.monotonic() - began)

    monkeypatch.setattr(policy_server, "_sink", events.append)
    monkeypatch.setattr(policy_server, "stop", timed_stop)
    with monkeypatch.context() as broken:
        broken.setattr(execute, "ServerClient", ReloadsNothing)
        long = {"max_tokens": 1500, "extra_body": {"ignore_eos": True}}
        in_flight = [asyncio.ensure_future(ask_forever(policy_server, long)) for _ in range(3)]
        await asyncio.sleep(1)
        await policy_server.swap(str(second_model_dir))
        for task in in_flight:
            task.cancel()
        await asyncio.gather(*in_flight, return_exceptions=True)
    assert reasons(events) == ["vLLM still answers like the previous weights"]
    assert events[-1]["how"] == "restart"
    assert len(stops) == 1
    assert stops[0] < execute.STOP_GRACE + 10  # requests were in flight
    assert wait_until_gone(tree)
    assert decided_by_weights(await chat(policy_server)) != before
    events.clear()
    await policy_server.swap(first)
    assert reasons(events) == []
    assert decided_by_weights(await chat(policy_server)) == before


def reasons(events):
    """Return why swaps in place were not possible."""
    return [event["reason"] for event in events if event["event"] == "swap_failed"]


async def ask_forever(server, request):
    """Keep a request in flight whatever becomes of the server."""
    while True:
        try:
            await chat(server, **request)
        except openai.APIError:
            await asyncio.sleep(0.2)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_nothing_outlives_the_command(tmp_path, number, status):
    """tests/stack kills commands with the real vLLM below them."""
    python, model = fake_python(tmp_path), weights(tmp_path / "model", b"one")
    argv = [sys.executable, "-m", "webgym_cli", "serve", str(tmp_path / "run"), "--model", str(model)]
    argv += ["-s", "serve.port=0", "-s", f"venvs.serve={python}"]
    with (tmp_path / "out").open("wb") as out:
        command = subprocess.Popen(argv, stdout=out, stderr=out)
    wait_until(lambda: len(descendants(command.pid)) >= 2)
    tree = descendants(command.pid)
    command.send_signal(number)
    assert command.wait(PATIENCE) == status
    assert len(tree) >= 2
    assert wait_until_gone(tree)
