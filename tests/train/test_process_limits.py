"""Limits of the processes beside the trainer: one that hangs ends, with all that it has started."""

import json
import os

import psutil
import pytest

from tests.train.train_data import settings_for
from webgym_cli.config.load import load
from webgym_cli.errors import JobError
from webgym_cli.train import process_limits
from webgym_cli.train.llamafactory import rendering
from webgym_cli.train.policy_gradient import critic_scoring
from webgym_cli.train.policy_gradient.critic_scoring import CriticState, success_probabilities
from webgym_cli.train.process_limits import run_within

SLEEP = f"301.{os.getpid()}"
STALL, TIME = {"stall_minutes": 1 / 60}, {"time_limit_minutes": 1 / 60}


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """An interpreter that hangs, with a child in a session of its own; its children must have ended afterwards."""
    monkeypatch.setattr(process_limits, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(process_limits, "STALL_FACTOR", 0)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nsetsid sleep {SLEEP} &\nwait\n")
    python.chmod(0o755)
    for module in (critic_scoring, rendering):
        monkeypatch.setattr(module, "role_python", lambda settings, role: python)
    yield python
    assert not [one for one in psutil.process_iter(["cmdline"]) if SLEEP in (one.info["cmdline"] or ())]


@pytest.mark.parametrize(("limits", "words"), [(STALL, "no progress"), (TIME, "passed its time limit")])
async def test_the_critic_and_the_comparison_of_templates_end_at_both_limits(hanging, tmp_path, limits, words):
    settings = settings_for(train=limits)
    with pytest.raises(JobError, match=f"the critic .*{words}"):
        await success_probabilities(tmp_path, tmp_path, [CriticState([1])], settings, tmp_path / "critic.log")
    with pytest.raises(JobError, match=f"the comparison of the templates .*{words}"):
        await rendering._compare(hanging, settings, {}, tmp_path)


async def test_what_reports_nothing_has_no_key_of_a_report(hanging, tmp_path, monkeypatch):
    hanging.write_text(f"#!/bin/sh\nenv > {tmp_path}/env\nexit 1\n")
    for name in ("WANDB_API_KEY", "GATEWAY_TOKEN", "ENV_SERVER_TOKEN", "HF_TOKEN"):
        monkeypatch.setenv(name, f"a-key-of-{name}")
    settings = load()  # reads the keys, as a command does
    for work in (
        success_probabilities(tmp_path, tmp_path, [CriticState([1])], settings, tmp_path / "critic.log"),
        rendering._compare(hanging, settings, {}, tmp_path),
    ):
        with pytest.raises(JobError, match="exit status 1"):
            await work
        names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
        assert {name for name in names if name.endswith(("_KEY", "_TOKEN"))} == {"HF_TOKEN"}  # of a hub's model


async def test_a_process_that_writes_lines_is_slow_and_does_not_hang(hanging, tmp_path):
    work = 'for n in 1 2 3 4 5 6; do sleep 0.4; echo $n >> "$0"; done; exit 3'
    argv, log = ["sh", "-c", work, "values"], tmp_path / "log"
    (tmp_path / "out").mkdir()
    limits = settings_for(train=STALL).train
    assert await run_within(limits, argv, "it", env=dict(os.environ), log=log, folder=tmp_path / "out") == 3
    assert json.loads(f"[{','.join((tmp_path / 'out/values').read_text().split())}]") == [1, 2, 3, 4, 5, 6]
