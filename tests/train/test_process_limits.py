"""Limits of the processes beside the trainer: one that hangs ends, with all that it has started."""

import os
from functools import partial
from types import SimpleNamespace

import psutil
import pytest

from tests.train.train_data import settings_for
from webgym_cli.config.load import load
from webgym_cli.errors import JobError, WebGymError
from webgym_cli.train import process_limits
from webgym_cli.train.deepspeed_ops import require_ops
from webgym_cli.train.llamafactory import lora_merge, optimizer_carryover, rendering
from webgym_cli.train.llamafactory.backend import CLI
from webgym_cli.train.llamafactory.optimizer_carryover import build_start
from webgym_cli.train.policy_gradient import critic_scoring
from webgym_cli.train.policy_gradient.critic_scoring import CriticState, success_probabilities
from webgym_cli.train.process_limits import run_within


def plan_for(python, folder):
    """Return what is read of a plan by the processes beside its trainer."""
    offload = {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}
    launch = SimpleNamespace(python=python, env={}, deepspeed=offload)
    options = {"resume_from_checkpoint": f"{folder}/a.start", "learning_rate": 1}
    start = SimpleNamespace(source=folder / "parent")
    partial_folder = folder / "a.partial"
    partial_folder.mkdir()
    return SimpleNamespace(launch=launch, options=options, start=start, total_steps=1, folder=partial_folder)


LIMITED = (
    "the critic",
    "the comparison of the templates",
    "merging the adapter",
    "preparing the optimizer states",
)


async def run_beside(name, python, settings, folder):
    """Run one of the processes beside the trainer."""
    plan, log = plan_for(python, folder), folder / "log"
    work = {
        "the critic": partial(success_probabilities, folder, folder, [CriticState([1])], settings, log),
        "the comparison of the templates": partial(rendering._compare, python, settings, {}, folder),
        "merging the adapter": partial(lora_merge._export, plan, settings, log),
        "preparing the optimizer states": partial(build_start, plan, settings, log, [].append),
        "a build of DeepSpeed": partial(require_ops, plan, settings, log, [].append),
    }
    await work[name]()


SLEEP = f"301.{os.getpid()}"
# It writes for longer than the limit `SLOW`.
WRITE = 'for n in 1 2 3 4 5 6; do sleep 0.5; echo $n >> "$0"; done'
STALL, SLOW, TIME = {"stall_minutes": 1 / 60}, {"stall_minutes": 2 / 60}, {"time_limit_minutes": 1 / 60}


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """An interpreter that hangs, with a child in a session of its own; its children must have ended afterwards."""
    monkeypatch.setattr(process_limits, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(process_limits, "STALL_FACTOR", 0)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nsetsid sleep {SLEEP} &\nwait\n")
    python.chmod(0o755)
    (tmp_path / CLI).symlink_to(python)
    for module in (critic_scoring, rendering):
        monkeypatch.setattr(module, "role_python", lambda settings, role: python)
    yield python
    assert not [one for one in psutil.process_iter(["cmdline"]) if SLEEP in (one.info["cmdline"] or ())]


@pytest.mark.parametrize(("limits", "words"), [(STALL, "no progress"), (TIME, "passed its time limit")])
@pytest.mark.parametrize("name", LIMITED)
async def test_each_process_beside_the_trainer_ends_at_both_limits(hanging, tmp_path, name, limits, words):
    with pytest.raises(JobError, match=f"{name} .*{words}"):
        await run_beside(name, hanging, settings_for(train=limits), tmp_path)


@pytest.mark.parametrize("name", [*LIMITED, "a build of DeepSpeed"])
async def test_a_process_beside_the_trainer_gets_no_key_for_reports(hanging, tmp_path, monkeypatch, name):
    hanging.write_text(f"#!/bin/sh\nenv > {tmp_path}/env\nexit 1\n")
    keys = ("WANDB_API_KEY", "GATEWAY_TOKEN", "ENV_SERVER_TOKEN", "HF_TOKEN")
    for key in keys:
        monkeypatch.setenv(key, f"a-key-of-{key}")
    settings = load(overrides=["venvs.device=cpu"])  # reads the keys, as a command does
    with pytest.raises(WebGymError):
        await run_beside(name, hanging, settings, tmp_path)
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names & {*keys} == {"HF_TOKEN"}  # of a hub's model


async def test_a_process_that_writes_lines_is_slow_and_does_not_hang(hanging, tmp_path):
    argv, log = ["sh", "-c", f"{WRITE}; exit 3", "values"], tmp_path / "log"
    (tmp_path / "out").mkdir()
    limits = settings_for(train=SLOW).train
    assert await run_within(limits, argv, "it", env=dict(os.environ), log=log, folder=tmp_path / "out") == 3
    assert (tmp_path / "out/values").read_text().split() == list("123456")


async def test_optimizer_states_that_are_written_slowly_are_prepared(hanging, tmp_path, monkeypatch):
    builder = tmp_path / "builder.sh"
    builder.write_text(f'cd "$2" && set -- "$2/states" && {WRITE.replace("$0", "$1")}')
    monkeypatch.setattr(optimizer_carryover, "BUILDER", builder)
    hanging.write_text('#!/bin/sh\nexec sh "$@"\n')
    (tmp_path / "a.start").mkdir()
    (tmp_path / "a.start/earlier").touch()
    plan = plan_for(hanging, tmp_path)
    assert await build_start(plan, settings_for(train=SLOW), tmp_path / "log", [].append) is plan
    assert [path.name for path in (tmp_path / "a.start").iterdir()] == ["states"]
    assert (tmp_path / "a.start/states").read_text().split() == list("123456")
