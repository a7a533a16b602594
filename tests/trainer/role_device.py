"""The trainer on a device beside the CPU in float32: with tiny shapes on the CPU itself, with larger ones on a GPU.

`test_rl_in_role.py` runs these tests on the CPU, `make test-gpu` on a GPU (TEST_DEVICE=cuda). Tolerances: in float32,
log-probs within 1e-4 nats and gradients within 0.1 % of their length; in bfloat16, log-probs within 0.05 nats in the
mean and gradients of a cosine above 0.98.
"""

import contextlib
import importlib.util
import shutil
import unittest
from pathlib import Path

import torch
from episodes import phase, webrl
from role_vision import seen
from tiny import (
    ALONE,
    CPU,
    DEVICE,
    SHIPPED,
    Stopped,
    assert_same,
    log_of,
    scores,
    scratch,
    several,
    some_rows,
    stopping_before,
    text_model,
    train,
    weights_of,
    write_batch,
    written,
)
from torch.optim.optimizer import register_optimizer_step_pre_hook

from webgym_cli.trainer.model.logprobs import token_log_probs

check = unittest.TestCase()
GPU = DEVICE.type == "cuda"
LARGER = {"vocab_size": 32_000, "hidden_size": 512, "intermediate_size": 1408}
LARGER |= {"num_hidden_layers": 8, "num_attention_heads": 8, "initializer_range": 0.05}
SIZES, LONGEST, BUDGET = (LARGER, 400, 1600) if GPU else ({}, 14, 40)
PLANS = {
    "packed": {},
    "padded": {"model": {"use_remove_padding": False}},
    "eager": {"model": {"attn_implementation": "eager", "use_remove_padding": False}},
    "chunks of 3 tokens": {"model": {"logprob_chunk": 3}},
    "activations computed again": {"model": {"enable_gradient_checkpointing": True}},
    "adapter": {"model": {"lora_rank": 4}},
    "actor and critic": {"algorithm": {"adv_estimator": "gae"}},
}


def wants(*packages):
    """Skip the test where a package, or what it imports, is missing: a bare machine has torch and transformers."""
    for name in packages:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise unittest.SkipTest(f"{name}: {error}") from error


def sized(**sections):
    """Return settings with this device's budget of tokens."""
    return sections | {"actor": {"ppo_max_token_len_per_gpu": BUDGET, **sections.get("actor", {})}}


def on_bf16(**sections):
    return sized(**sections) | {"trainer": {"bf16": True, **sections.get("trainer", {})}}


def write(place):
    """Write a model and a batch of eight episodes of this device's sizes; return the model's folder."""
    model = text_model(place / "model", **SIZES)
    rows = some_rows(longest=LONGEST)
    write_batch(place / "data", rows, rewards=[1.0, 0, 1, 0, 0, 1, None, 1], groups=[0] * 4 + [1] * 4, model=model)
    return model


def first_gradient(place, world, name, **sections):
    """Train; return the policy's gradient of the first step as one vector, and the folder of the model."""
    calls = []

    def keep(optimizer, *_):
        held = [value for group in optimizer.param_groups for value in group["params"]]
        calls.append(torch.cat([value.grad.detach().float().cpu().flatten() for value in held]))

    output = {"output_dir": str(place / name), **sections.pop("trainer", {})}
    with register_optimizer_step_pre_hook(keep):
        trained = train(place, world, **sections, trainer=output)
    return calls[0], trained


def assert_near(rows, wanted, most=1e-3):
    """Compare gradients by the length of their difference."""
    assert wanted.norm() > 0
    check.assertLess(float((rows - wanted).norm() / wanted.norm()), most)


def cosine(one, other):
    return float(torch.nn.functional.cosine_similarity(one.double(), other.double(), dim=0))


def test_log_probs_equal_the_cpu_s():
    with scratch() as place:
        model = write(place)
        wanted = scores(place, model, CPU, **sized())
        for name in ("packed", "padded", "eager"):
            result = scores(place, model, **sized(**PLANS[name]))
            torch.testing.assert_close(result, wanted, atol=1e-4, rtol=1e-4, msg=lambda text, name=name: name + text)
            half = scores(place, model, **on_bf16(**PLANS[name]))
            check.assertLess(float((half - wanted).abs().mean()), 0.05, name)


def test_flash_attention_gives_the_same_log_probs():
    if not GPU:
        raise unittest.SkipTest("flash attention needs a GPU")
    wants("flash_attn")
    with scratch() as place:
        model = write(place)
        wanted = scores(place, model, CPU, **sized())
        for packed in (True, False):
            given = {"attn_implementation": "flash_attention_2", "use_remove_padding": packed}
            result = scores(place, model, **on_bf16(model=given))
            check.assertLess(float((result - wanted).abs().mean()), 0.05)


def test_gradients_and_updates_equal_the_cpu_s():
    plans = PLANS if importlib.util.find_spec("peft") else {name: PLANS[name] for name in PLANS if name != "adapter"}
    with scratch() as place:
        write(place)
        for number, (name, given) in enumerate(plans.items()):
            wanted, updated = first_gradient(place, CPU, f"cpu{number}", **sized(**given))
            if GPU:  # a CPU need not be compared with itself
                gradient, result = first_gradient(place, ALONE, f"device{number}", **sized(**given))
                assert_near(gradient, wanted)
                assert_same(result, updated, atol=1e-4, rtol=1e-3)
            half, _ = first_gradient(place, ALONE, f"bf16-{number}", **on_bf16(**given))
            check.assertGreater(cosine(half, wanted), 0.98, name)


def test_pictures_give_the_cpu_s_log_probs_and_gradients():
    wants("PIL", "torchvision")
    with scratch() as place:
        model, _ = seen(place)
        given = {"actor": {"ppo_max_token_len_per_gpu": 60}, "model": {"freeze_vision_tower": False}}
        wanted = scores(place, model, CPU, **given)
        torch.testing.assert_close(scores(place, model, **given), wanted, atol=1e-4, rtol=1e-4)
        half = scores(place, model, **given, trainer={"bf16": True})
        check.assertLess(float((half - wanted).abs().mean()), 0.05)
        gradient, updated = first_gradient(place, CPU, "cpu", **given)
        result, outcome = first_gradient(place, ALONE, "device", **given)
        assert_near(result, gradient)
        assert_same(outcome, updated, atol=1e-4, rtol=1e-3)


def test_webrl_s_critic_and_actor_equal_the_cpu_s():
    if not GPU:
        raise unittest.SkipTest("on the CPU they would be compared with themselves")
    with scratch() as place:
        phase(place)
        names = ((CPU, "cpu"), (ALONE, "device"))
        models = [train(place, world, **webrl(trainer={"output_dir": str(place / name)})) for world, name in names]
        for part in ("", "critic"):
            assert_same(*(model / part for model in models), atol=1e-4, rtol=1e-3)
        for one, other in zip(log_of(place, "cpu"), log_of(place, "device"), strict=True):
            for name in one.keys() & {"critic/loss", "critic/accuracy", "loss"}:
                check.assertAlmostEqual(one[name], other[name], places=3)


def test_chunked_log_probs_equal_all_logits_and_need_less_memory():
    tokens, hidden, vocabulary, chunk = (4096, 896, 151_936, 256) if GPU else (24, 16, 101, 5)
    states = torch.randn(tokens, hidden, device=DEVICE).requires_grad_()
    layer = (0.05 * torch.randn(vocabulary, hidden, device=DEVICE)).requires_grad_()
    labels = torch.randint(vocabulary, (tokens,), device=DEVICE)
    slopes, calls = torch.randn(tokens, device=DEVICE), []
    for size in (chunk, tokens):
        if GPU:
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if GPU else 0
        log_probs, entropy = token_log_probs(states, layer, labels, chunk=size)
        gradients = torch.autograd.grad((slopes * (log_probs - 0.1 * entropy)).sum(), [states, layer])
        peak = torch.cuda.max_memory_allocated() - before if GPU else 0
        calls.append((log_probs.detach(), gradients, peak))
    torch.testing.assert_close(calls[0][0], calls[1][0], atol=1e-4, rtol=1e-4)
    for one, other in zip(calls[0][1], calls[1][1], strict=True):
        assert_near(one, other)
    if GPU:
        check.assertLess(calls[0][2], calls[1][2] / 2)


def compare_zero(files):
    """Train with DeepSpeed's configurations and without DeepSpeed: the same weights, and in bfloat16 the same way."""
    wants("deepspeed")
    with scratch() as place:
        model = write(place)
        kinds = {"plain": {}} | {file: {"deepspeed": str(SHIPPED / file)} for file in files}
        halves = [written(place, f"half {name}", **on_bf16(trainer=given)) for name, given in kinds.items()]
        several(*(written(place, name, **sized(trainer=given)) for name, given in kinds.items()), *halves)
        before = weights_of(model)
        for name in files:
            assert_same(place / "plain/checkpoint-1", place / name / "checkpoint-1", atol=1e-4, rtol=1e-3)
            ways = []
            for half in ("half plain", f"half {name}"):
                after = weights_of(place / half / "checkpoint-1")
                ways.append(torch.cat([(after[key].float() - value).flatten() for key, value in before.items()]))
            check.assertGreater(cosine(*ways), 0.9, name)


def test_zero_equals_plain_torch():
    # on the CPU, role_processes.py compares the other stages
    compare_zero([f"ds_config_h200_zero{stage}.json" for stage in (1, 2, 3)] if GPU else ["ds_config_cpu_zero2.json"])


def test_zero_with_offload_equals_plain_torch():
    if not GPU:
        raise unittest.SkipTest("the shipped configurations with offload are for GPUs")
    if not (shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists()):
        raise unittest.SkipTest("DeepSpeed compiles its CPU optimizer with nvcc, which is not here")
    compare_zero([f"ds_config_h200_zero{stage}_offload.json" for stage in (1, 2, 3)])


@contextlib.contextmanager
def deterministic():
    """Have torch take its deterministic kernels. Eager attention and padded lines consist of those alone."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def test_an_interrupted_training_ends_with_the_same_bits():
    with scratch() as place, deterministic():
        write(place)
        steps = {"ppo_mini_batch_size": 3, "ppo_epochs": 2}
        for bf16 in (False, True) if GPU else (True,):  # role_update.py has float32 on the CPU
            given = sized(**PLANS["eager"], actor=steps)
            trainer = {"bf16": bf16, "save_freq": 2, "output_dir": str(place / f"whole{bf16}")}
            whole = train(place, **given, trainer=trainer)
            cut = trainer | {"output_dir": str(place / f"cut{bf16}")}
            for number in (3, 5):
                with stopping_before(number), check.assertRaises(Stopped):
                    train(place, **given, trainer=cut)
            assert_same(whole, train(place, **given, trainer=cut), atol=0, rtol=0)
