"""The servers of a run over its stages, against a process that speaks vLLM's HTTP."""

import pytest

from tests.serve.fakes import fake_python, look, weights
from tests.train.fake_checkpoints import published
from webgym_cli.config.load import load
from webgym_cli.loop.serving import Serving
from webgym_cli.serve import execute
from webgym_cli.store.metrics import read_events
from webgym_cli.store.run import RunDir, create_or_open


@pytest.fixture
async def serving(tmp_path, monkeypatch):
    """Returns how to make the servers of a run whose first policy is the base model."""
    monkeypatch.setattr(execute, "POLL_SECONDS", 0.02)
    made = []

    def make(*overrides):
        base, python = weights(tmp_path / "base", b"one"), fake_python(tmp_path)
        given = ["serve.port=0", f"policy_config.base_model={base}", f"venvs.serve={python}", *overrides]
        run, settings = RunDir(tmp_path / "run"), load(overrides=given)
        create_or_open(run, settings)
        made.append(Serving(run, settings, tmp_path / "logs", lambda event: None))
        return made[-1]

    yield make
    for one in made:
        await one.stop()


SERVER_EVENTS = ("serve", "swap", "wake", "sleep", "stop")


def trained(run, content):
    """A training has published a checkpoint."""
    folder = published(run, 1)
    weights(folder, content)
    return str(folder.resolve())


def kept(run):
    return [
        (event["event"], event.get("how"), event.get("model", "").rpartition("/")[2])
        for event in read_events(run, *SERVER_EVENTS)
    ]


async def test_on_gpus_the_servers_sleep_while_a_training_runs(serving):
    one = serving("venvs.device=cuda", "serve.replicas=1")
    urls = await one.current()
    pid = (await look(urls[0]))["pid"]
    await one.release_gpus()
    trained(one.run, b"two")
    assert await one.current() == urls
    assert (await look(urls[0]))["pid"] == pid
    assert kept(one.run) == [
        ("serve", None, "base"),
        ("sleep", None, ""),
        ("wake", "in_place", "model_20260101_000000"),
    ]
    assert all(event["seconds"] >= 0 and "message" not in event for event in read_events(one.run, *SERVER_EVENTS))


async def test_on_a_cpu_the_server_stays_up(serving):
    one = serving("venvs.device=cpu")
    urls = await one.current()
    await one.release_gpus()
    assert await one.current() == urls
    trained(one.run, b"two")
    await one.current()
    assert kept(one.run) == [("serve", None, "base"), ("swap", "in_place", "model_20260101_000000")]
    await one.stop()
    assert one.watch() is None
