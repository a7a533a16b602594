"""Several processes and DeepSpeed: the same training as in one process without it."""

import unittest

import torch
from tiny import (
    ALONE,
    OPTIM,
    SHIPPED,
    assert_same,
    log_of,
    scratch,
    several,
    text_model,
    train,
    usual,
    weights_of,
    written,
)

from webgym_cli.trainer.engine.engine import DeepSpeedEngine
from webgym_cli.trainer.options import TrainingError

STEPS = {"ppo_mini_batch_size": 3, "ppo_max_token_len_per_gpu": 30}
CLOSE = {"atol": 5e-5, "rtol": 1e-3}


def zero(stage):
    return {"deepspeed": str(SHIPPED / f"ds_config_cpu_zero{stage}.json")}


def test_two_processes_equal_one_which_goes_on_with_what_they_began():
    with scratch() as place:
        usual(place)
        trained = train(place, actor=STEPS)
        two, cut = (written(place, name, actor=STEPS) for name in ("two", "cut"))
        several(two, f"{cut}@2")
        train(place, actor=STEPS, trainer={"output_dir": str(place / "cut")})
        for name in ("two", "cut"):
            assert_same(trained, place / name / trained.name, **CLOSE)
            for one, other in zip(log_of(place, "out"), log_of(place, name), strict=True):
                for key in ("loss", "actor/entropy", "actor/grad_norm", "actor/pg_clipfrac"):
                    assert (key in one) == (key in other)
                    assert abs(one.get(key, 0) - other.get(key, 0)) < 1e-4, (name, key, one, other)


def test_one_process_refuses_what_zero_divided_among_two():
    with scratch() as place:
        usual(place)
        several(f"{written(place, 'two', actor=STEPS, trainer=zero(1))}@2")
        engine = DeepSpeedEngine.__new__(DeepSpeedEngine)  # without DeepSpeed, which takes seconds to start
        engine._world = ALONE
        with unittest.TestCase().assertRaisesRegex(TrainingError, "states of 2 processes, 1 are to go on"):
            engine.load(place / "two/state-2/actor")


def test_zero_1_and_2_equal_plain_torch():
    with scratch() as place:
        usual(place)
        trained = train(place, actor=STEPS)
        several(*(written(place, f"zero{stage}", actor=STEPS, trainer=zero(stage)) for stage in (1, 2)))
        for stage in (1, 2):
            assert_same(trained, place / f"zero{stage}" / trained.name, **CLOSE)
            norms = [[line.get("actor/grad_norm") for line in log_of(place, name)] for name in ("out", f"zero{stage}")]
            for one, other in zip(*norms, strict=True):
                assert abs(one - other) < 1e-3


def test_zero_goes_on_and_carries_over():
    with scratch() as place:
        usual(place)
        config = written(place, "one", actor=STEPS, trainer={**zero(1)})
        carried = {**zero(1), "carry_state": str(place / "cut" / "checkpoint-3" / "rl_state")}
        cut = written(place, "cut", actor=STEPS, trainer=zero(1))
        warm = STEPS | {"optim": OPTIM | {"lr_warmup_steps": 9, "weight_decay": 0.5}}
        further = written(place, "further", actor=warm, trainer=carried)
        several(config, f"{cut}@1", f"{cut}@2", cut, further)
        assert_same(place / "one" / "checkpoint-3", place / "cut" / "checkpoint-3", atol=0, rtol=0)
        assert [line["current_steps"] for line in log_of(place, "cut")] == [1, 2, 3, 3]
        first, second = (log_of(place, name)[-1]["rollout_corr/log_prob_difference"] for name in ("cut", "further"))
        assert first < 1e-5 < second
        # the warm-up counts the three steps before, and the new weight decay holds beside the old moments
        torch.testing.assert_close([line["lr"] for line in log_of(place, "further")[:-1]], [0.004, 0.005, 0.006])
        engine = place / "further" / "checkpoint-3" / "rl_state" / "actor" / "engine"
        for shard in engine.glob("*_optim_states.pt"):
            saved = torch.load(shard, weights_only=False)["optimizer_state_dict"]["base_optimizer_state"]
            assert [group["weight_decay"] for group in saved["param_groups"]] == [0.5]


def test_zero_3_with_reference_and_critic_equals_plain_torch_and_goes_on():
    with scratch() as place:
        usual(place)
        given = {
            "actor": STEPS | {"use_kl_loss": True, "kl_loss_coef": 0.1},
            "ref": {"path": str(text_model(place / "other", seed=9))},
            "algorithm": {"adv_estimator": "gae"},
            "model": {"enable_gradient_checkpointing": True},
        }
        trained = train(place, **given)
        cut = written(place, "cut", **given, trainer=zero(3))
        several(f"{cut}@2", cut)
        assert_same(trained, place / "cut" / trained.name, **CLOSE)
        assert_same(trained / "critic", place / "cut" / trained.name / "critic", **CLOSE)
        assert weights_of(trained / "critic")["weight"].any()


def test_zero_3_with_an_adapter_equals_plain_torch():
    with scratch() as place:
        usual(place)
        given = {"actor": STEPS | {"use_kl_loss": True, "kl_loss_coef": 0.1}, "model": {"lora_rank": 4}}
        trained = train(place, **given)
        several(written(place, "zero3", **given, trainer=zero(3)))
        assert_same(trained, place / "zero3" / trained.name, **CLOSE)
