"""`webgym doctor --gpu` on machines that are made up; the real round is in tests/stack/test_gpu_round.py."""

import math

import pytest
from typer.testing import CliRunner

from benchmarks.model_shapes import published_tensors
from tests.app import app
from tests.stack_fixtures import needs
from webgym_cli.cli import gpu_checks
from webgym_cli.cli.gpu_checks import check_gpus, check_memory, report_gpus
from webgym_cli.cli.gpu_round import RoundResult, summarize
from webgym_cli.config.load import load
from webgym_cli.errors import JobError, VenvError

GB = 10**9
H200 = {"name": "NVIDIA H200", "bytes": 141 * GB, "free": 140 * GB}
FINE = RoundResult({"serve": 30.0, "training": 12.0}, "in_place", "", 0.001)


@pytest.fixture(autouse=True)
def downloaded(monkeypatch):
    """The published models are here."""
    monkeypatch.setattr(gpu_checks.footprint, "model_tensors", published_tensors)


@pytest.fixture
def machine(monkeypatch):
    """Returns how to make up a machine: its GPUs, and what the round gives."""

    def make(gpus=(H200,), result=FINE, speed=400 * GB):
        def report(python, processes, device):
            return {"torch": "2.11.0", "cuda": "13.0", "gpus": list(gpus), "all_reduce": speed}

        async def run_round(settings, folder):
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr(gpu_checks, "driver_answers", lambda: True)
        monkeypatch.setattr(gpu_checks, "role_python", lambda settings, role: role)
        monkeypatch.setattr(gpu_checks, "report_gpus", report)
        monkeypatch.setattr(gpu_checks, "run_round", run_round)

    return make


def checked(*overrides):
    settings = load(overrides=["policy_config.base_model=Qwen/Qwen2.5-0.5B-Instruct", *overrides])
    return {check.name: check for check in check_gpus(settings)}


def test_without_a_gpu_it_says_so_and_what_to_do(monkeypatch):
    monkeypatch.setattr(gpu_checks, "driver_answers", lambda: False)
    with pytest.raises(VenvError, match="no GPU") as caught:
        list(check_gpus(load()))
    assert "nvidia-smi" in caught.value.hint
    assert CliRunner().invoke(app, ["doctor", "--gpu"]).exception.exit_code == 2


def test_a_good_machine_has_a_figure_for_each_part(machine):
    machine(gpus=(H200, H200))
    parts = checked()
    assert list(parts) == ["serve torch", "train torch", "nccl", "serve, train, swap", "memory"]
    assert {part.status for part in parts.values()} == {"ok"}
    assert "400 GB/s" in parts["nccl"].version
    assert "141 GB (140 free)" in parts["train torch"].version
    assert "training 12.0 s" in parts["serve, train, swap"].version


def test_one_gpu_needs_no_nccl_and_a_torch_that_sees_none_is_named(machine):
    machine()
    assert "one GPU" in checked()["nccl"].version
    machine(gpus=())
    part = checked()["train torch"]
    assert (part.status, "driver" in part.fix) == ("missing", True)


@pytest.mark.parametrize(
    ("result", "status", "fix"),
    [
        (RoundResult({}, "restart", "it has other answers", 0.0), "warn", "it has other answers"),
        (RoundResult({}, "in_place", "", 0.02), "warn", "serve.dtype"),
        (JobError("vLLM ended", hint="read its log"), "missing", "read its log"),
    ],
)
def test_a_round_that_goes_wrong_is_told_with_what_mends_it(machine, result, status, fix):
    machine(result=result)
    part = checked()["serve, train, swap"]
    assert part.status == status
    assert fix in part.fix


def test_a_round_needs_both_environments(machine, monkeypatch):
    machine()

    def missing(settings, role):
        if role == "serve":
            raise VenvError("not there", hint="webgym setup --role serve")
        return role

    monkeypatch.setattr(gpu_checks, "role_python", missing)
    parts = checked()
    assert parts["serve torch"].fix == "webgym setup --role serve"
    assert "serve, train, swap" not in parts and "nccl" in parts


def test_memory_by_hand():
    model = "Qwen/Qwen2.5-0.5B-Instruct"
    count = sum(math.prod(shape) for _, _, shape in published_tensors(model))
    plain = [f"policy_config.base_model={model}", "algorithm_config.deepspeed_config_filename=null"]
    # bytes of a weight: fp32, gradients and two moments; gae has a critic of the same size
    for kind, size in (("sft", 16), ("grpo", 16), ("gae", 32)):
        settings = load(overrides=[*plain, "rl.trainer.deepspeed=null", f"train.algorithm={kind}"])
        assert f"training {size * count / GB:.1f} GB" in check_memory(settings, 0, 1).version


def test_a_model_that_does_not_fit_names_the_setting():
    model = "policy_config.base_model=Qwen/Qwen3-VL-8B-Instruct"
    training = check_memory(load(overrides=[model]), 80 * GB, 1)
    assert training.status == "missing"
    assert "algorithm_config.deepspeed_config_filename" in training.fix
    adapted = load(overrides=[model, "algorithm_config.finetuning_type=lora"])
    assert check_memory(adapted, 80 * GB, 1).status == "ok"
    assert "serve.tensor_parallel_size" in check_memory(adapted, 18 * GB, 1).fix
    assert check_memory(load(overrides=["policy_config.base_model=owner/unheard-of"]), 80 * GB, 1).status == "warn"


def test_what_a_round_took_is_read_off_its_events():
    events = [
        {"event": "serve", "bar": "vllm"},
        {"event": "serve", "seconds": 30.0},
        {"event": "sleep_failed", "reason": "it holds 12 GiB"},
        {"event": "wake", "seconds": 2.0, "how": "restart"},
    ]
    figures = {"training": 9.0, "serve": 30.0, "wake": 2.0}
    result = RoundResult(figures, "restart", "it holds 12 GiB", 0.5)
    assert summarize(events, {"rollout_corr/kl": 0.5, "seconds": 9.0}) == result


def test_an_interpreter_without_torch_is_told_by_its_last_words(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"No module named 'torch'\" >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(JobError, match="No module named 'torch'"):
        report_gpus(python, 1, "cpu")


@pytest.mark.stack
def test_the_all_reduce_of_two_processes_has_a_speed():
    report = report_gpus(needs("train"), 2, "cpu")
    assert report["all_reduce"] > 0
    assert report["gpus"] == []


@pytest.mark.gpu
def test_this_host_passes(gpu):
    assert "missing" not in {check.status for check in check_gpus(load())}
