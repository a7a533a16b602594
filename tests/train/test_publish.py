import json
import math
import struct
import time
from dataclasses import replace

import pytest

from tests.train.fake_checkpoints import checkpoint
from tests.train.train_data import prepare, rows, settings_for
from webgym_cli.errors import JobError
from webgym_cli.jobs.machine_time import MachineMeter
from webgym_cli.loop.training import plan_training
from webgym_cli.store import checkpoints
from webgym_cli.train import publish, trainer_log

NAME = "model_20260109_000000"


@pytest.fixture
def plan(run, role, tmp_path):
    settings = settings_for(role=role)
    prepare(run, settings, rows(tmp_path / "images", 4), NAME)
    return plan_training(run, settings, {})


def test_publishes_and_tidies_up(plan, run, tmp_path):
    weights = checkpoint(plan.folder / "checkpoint-4")
    (weights / "training_args.bin").write_bytes(b"pickle")
    (plan.folder / "chat_template.jinja").write_text("template")
    (plan.folder / "trainer_log.jsonl").write_text('{"current_steps": 4, "total_steps": 4, "loss": 1.5}\n')
    weights = publish.finished_checkpoint(plan, tmp_path)
    saved = publish.publish(plan, run, settings_for(), weights, tmp_path, MachineMeter(_clock=time.monotonic() - 90))
    assert 90 <= saved.seconds < 100
    assert (saved.gpus, saved.cpu_seconds < 9) == (0, True)
    assert (saved.version, saved.steps, saved.loss, saved.resumable) == (1, 4, 1.5, True)
    assert checkpoints.current(run) == saved
    folder = run.model(settings_for()).resolve()
    assert folder == (run.checkpoints / NAME).resolve()
    assert (folder / "chat_template.jinja").read_text() == "template"
    assert not (folder / "training_args.bin").exists()
    assert [path.name for path in run.checkpoints.iterdir()] == [NAME]
    assert (tmp_path / f"{NAME}.trainer_log.jsonl").is_file()


def test_an_early_end_is_a_failure(plan, tmp_path):
    with pytest.raises(JobError, match="after 0 of 2 steps"):
        publish.finished_checkpoint(plan, tmp_path / "train.log")
    checkpoint(plan.folder / "checkpoint-3", step=3)
    with pytest.raises(JobError, match="after 3 of 4 steps"):
        publish.finished_checkpoint(plan, tmp_path / "train.log")


def test_a_diverged_training_is_not_published(plan, tmp_path):
    path = checkpoint(plan.folder / "checkpoint-4")
    state = json.loads((path / "trainer_state.json").read_text())
    state["log_history"].append({"grad_norm": float("nan"), "step": 4})
    (path / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(JobError, match="NaN"):
        publish.finished_checkpoint(plan, tmp_path / "train.log")
    assert not plan.folder.exists()


TORCHRUN = """Traceback (most recent call last):
  File "x.py", line 1, in <module>
[rank0]: ValueError: Image features and image tokens do not match
E1121 failed (exitcode: 1)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
subprocess.CalledProcessError: Command '['torchrun']' returned non-zero exit status 1.
"""


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (TORCHRUN, "ValueError: Image features and image tokens do not match"),
        ("starting\ntorch.OutOfMemoryError: CUDA out of memory.\n", "torch.OutOfMemoryError: CUDA out of memory."),
        ("KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("line one\n  line two \n\n", "line two"),
        (
            "ValueError: a\nChildProcessError: [Errno 10] No child processes\nb\n",
            "ChildProcessError: [Errno 10] No child processes",
        ),
        (
            f"ValueError: Failed. See root cause above\n{TORCHRUN.split('E1121')[1]}",
            "ValueError: Failed. See root cause above",
        ),
        (
            "KeyError: 'a'\ntorch.distributed.elastic.multiprocessing.api.SignalException: got signal: 15\n",
            "KeyError: 'a'",
        ),
        (
            "torch._inductor.exc.InductorError: CalledProcessError: gcc\nb\n",
            "torch._inductor.exc.InductorError: CalledProcessError: gcc",
        ),
        (
            "pydantic_core.ValidationError: 2 validation errors for Options\nlr\n",
            "pydantic_core.ValidationError: 2 validation errors for Options: lr",
        ),
        ("ValueError: the validation error is NaN\nb\n", "ValueError: the validation error is NaN"),
        ("webgym: 1 validation error for Options: lr\nb\n", "1 validation error for Options: lr"),
        (f"webgym: b: line 3: no tokens\n{TORCHRUN.split('E1121')[1]}", "b: line 3: no tokens"),
        ("", ""),
    ],
)
def test_the_reason_in_a_log(tmp_path, log, line):
    (tmp_path / "log").write_text(log)
    assert trainer_log.reason(tmp_path / "log") == line


def test_a_killed_trainer_and_a_full_disk_have_their_own_words(tmp_path):
    (tmp_path / "log").write_text("OSError: [Errno 28] No space left on device\n")
    assert "lack of memory" in str(trainer_log.trainer_error(137, tmp_path / "log"))
    assert "free disk space" in trainer_log.trainer_error(1, tmp_path / "log").hint
    torch_save = "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 9262336 vs 9262228\n"
    (tmp_path / "log").write_text(torch_save)
    assert "free disk space" in trainer_log.trainer_error(1, tmp_path / "log").hint


def tensors(path, *values, kind="F32", name="w"):
    """Write one tensor; BF16 is the upper half of F32."""
    raw = b"".join(struct.pack("<f", value)[4 - (4 if kind == "F32" else 2) :] for value in values)
    header = json.dumps({name: {"dtype": kind, "shape": [len(values)], "data_offsets": [0, len(raw)]}}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + raw)


@pytest.mark.parametrize("kind", ["F32", "BF16"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "file", ["model.safetensors", "model-00002-of-00002.safetensors", "adapter/adapter_model.safetensors"]
)
def test_weights_that_are_not_finite_are_not_published(plan, tmp_path, kind, value, file):
    weights = checkpoint(plan.folder / "checkpoint-4")
    tensors(weights / file, 1.0, value, -2.0, kind=kind, name="layers.0")
    with pytest.raises(JobError, match=r"diverged.*layers\.0"):
        publish.check_weights(plan, weights, tmp_path / "train.log")
    assert not plan.folder.exists()


@pytest.mark.parametrize("kind", ["F32", "BF16"])
def test_large_and_small_values_are_finite(plan, tmp_path, kind):
    weights = checkpoint(plan.folder / "checkpoint-4")
    tensors(weights / "model.safetensors", 3.38e38, -3.38e38, 1e-45, 0.0, kind=kind)
    assert publish.check_weights(plan, weights, tmp_path) == ""


def test_a_training_that_changed_nothing_is_noted(plan, tmp_path):
    weights, base = checkpoint(plan.folder / "checkpoint-4"), tmp_path / "base"
    plan = replace(plan, data=plan.data._replace(model=str(base)))
    tensors(weights / "model.safetensors", 1.0, 2.0)
    tensors(base / "model.safetensors", 1.0, 2.5)
    assert publish.check_weights(plan, weights, tmp_path) == ""
    tensors(weights / "adapter/adapter_model.safetensors", 0.0, 0.5, name="q.lora_B.weight")
    assert publish.check_weights(plan, weights, tmp_path) == ""
    tensors(weights / "adapter/adapter_model.safetensors", 0.0, 0.0, name="q.lora_B.weight")
    assert "changed nothing" in publish.check_weights(plan, weights, tmp_path)
    log = plan.folder / "trainer_log.jsonl"
    for line, cause in (
        ({"lr": 0.0}, "learning rate"),
        ({"lr": 1e-6, "actor/grad_norm": 0.0}, "rewards"),
        ({"lr": 1e-6, "actor/grad_norm": 0.1}, "number format"),
        ({"lr": 1e-6, "critic/grad_norm": 2.0}, "critic_warmup"),
        ({"lr": 1e-6}, "number format"),
    ):
        log.write_text(json.dumps({"current_steps": 1, "total_steps": 1, "loss": 0.5} | line))
        assert cause in publish.check_weights(plan, weights, tmp_path)
    critic = {"current_steps": 1, "total_steps": 2, "loss": 0.5, "lr": 1e-6, "critic/grad_norm": 2.0}
    actor = {"current_steps": 2, "total_steps": 2, "loss": 0.0, "lr": 1e-6, "actor/grad_norm": 0.0}
    log.write_text(f"{json.dumps(critic)}\n{json.dumps(actor)}\n")
    assert "rewards" in publish.check_weights(plan, weights, tmp_path)
    (weights / "adapter/adapter_model.safetensors").unlink()
    tensors(base / "model.safetensors", 1.0, 2.0)
    assert "changed nothing" in publish.check_weights(plan, weights, tmp_path)
