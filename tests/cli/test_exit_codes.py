"""Each published exit code, from a real command."""

import signal
import subprocess
from functools import partial

import pytest

from tests import forked
from tests.cli.runs import filled
from tests.executable import Command
from tests.records.builders import new_run
from tests.records.test_judgement import judgement
from webgym_cli.config.load import load
from webgym_cli.errors import EXIT_CODES
from webgym_cli.records.task import Split
from webgym_cli.records.usage import TokenUsage
from webgym_cli.store.buffer import append_judgement
from webgym_cli.store.status import lock_run

webgym = partial(forked.webgym, code=None)


@pytest.fixture
def run(tmp_path):
    return filled(tmp_path)


def done(run):
    return webgym("inspect-buffer", run.root, cwd=run.root.parent)


def failed(run):
    with run.part(Split.TRAIN, 0).open("a") as lines:
        lines.write("this is no trajectory\n")
    return webgym("inspect-buffer", run.root, "--verify", cwd=run.root.parent)


def wrong(run):
    return webgym("prepare", run.root, "-s", "venvs.devise=cpu", cwd=run.root.parent)


def missing(run):
    return webgym("prepare", run.root.parent / "ran", cwd=run.root.parent)


def child_failed(run):
    python = run.root.parent / "python"
    python.write_text("#!/bin/sh\necho 'ValueError: no such device'\nexit 3\n")
    python.chmod(0o755)
    return webgym("serve", run.root, "-s", f"venvs.serve={python}", "-s", "serve.port=0", cwd=run.root.parent)


def below(run):
    """Four of five planned episodes are solved, and all are stored."""
    words = ("--episodes", "5", "--min-success", "0.9", "--policy", "oracle")
    return webgym("rollout", run.root, *words, cwd=run.root.parent)


def locked_out(run):
    with lock_run(run, "train runs/a"):
        return webgym("judge", run.root, "-s", "judge.base_url=scripted", cwd=run.root.parent)


def out_of_time(run):
    given = ("-s", "tasks.train=miniwob:click-button", "--phase", "rollout", "--stop-before", "1s")
    return webgym("loop", run.root.with_name("late"), *given, cwd=run.root.parent, SLURM_JOB_END_TIME="1")


def over_budget(run):
    verdict = judgement(trajectory="train-0000-00000", models={"verdict": "m"}, tokens=TokenUsage(prompt=10))
    new = new_run(run.root.with_name("spent"), load((), ["tasks.train=miniwob:click-button"]))
    append_judgement(new, Split.TRAIN, 0, verdict)
    prices = 'cost.prices={"m": {"prompt": 1e6, "completion": 1e6}}'
    words = ("--episodes", "1", "--policy", "oracle", "-s", prices, "--max-cost", "1")
    return webgym("rollout", new.root, *words, cwd=run.root.parent)


def signalled(number):
    def call(run):
        command = Command(run.root.parent, "label", run.root)
        command.until(command.out.read_text)
        return subprocess.CompletedProcess([], command.send(number), "", command.err.read_text())

    return call


CASES = {
    0: (done, ""),
    1: (failed, "not all is as it was written"),
    2: (wrong, "did you mean 'venvs.device'?"),
    3: (missing, "did you mean {run}?"),
    4: (child_failed, "no such device"),
    5: (below, "success rate 0.8 is below --min-success 0.9"),
    75: (locked_out, "webgym train runs/a"),
    85: (out_of_time, "before the deadline"),
    86: (over_budget, "10.0000 of the cost of 1 is spent"),
    130: (signalled(signal.SIGINT), "interrupted"),
    143: (signalled(signal.SIGTERM), "terminated"),
}


def test_every_code_has_its_case():
    assert list(CASES) == list(EXIT_CODES)


@pytest.mark.parametrize("code", CASES)
def test_a_code_is_what_a_command_ends_with(run, code):
    call, words = CASES[code]
    result = call(run)
    assert result.returncode == code, result.stderr
    assert words.format(run=run.root) in result.stderr
