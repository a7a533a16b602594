"""The trainer in one process: reference, critic, adapters, and what is handed from a training to the next."""

import json
import unittest

import torch
from tiny import (
    ALONE,
    assert_same,
    log_of,
    options,
    plain_log_probs,
    scores,
    scratch,
    text_model,
    train,
    usual,
    weights_of,
)

from webgym_cli.trainer.engine.step import BatchRunner
from webgym_cli.trainer.options import TrainingError
from webgym_cli.trainer.ppo import batch_targets
from webgym_cli.trainer.ppo.kl import kl_estimate
from webgym_cli.trainer.ppo.ppo_trainer import PolicyGradientTrainer

check = unittest.TestCase()
KL = {"use_kl_loss": True, "kl_loss_coef": 0.5, "kl_loss_type": "mse"}


def learned(place, **sections):
    """Return what a finished training has computed before its first step."""
    gradient_trainer = PolicyGradientTrainer(options(place, **sections), ALONE)
    return batch_targets.load_targets(gradient_trainer.output, gradient_trainer.digest)


def test_a_reference_of_its_own_is_scored_and_counts():
    with scratch() as place:
        usual(place)
        other = text_model(place / "other", seed=9)
        given = {"actor": KL, "ref": {"path": str(other)}}
        train(place, **given)
        learning = learned(place, **given)
        rows = [json.loads(line) for line in (place / "data" / "rows.jsonl").read_text().splitlines()]
        wanted = torch.cat(plain_log_probs(other, [row for row in rows if row["number"] != 6]))
        torch.testing.assert_close(learning.tensors["reference"], wanted, atol=1e-5, rtol=1e-5)
        kl = kl_estimate(learning.tensors["old_log_probs"], wanted, "mse").mean()
        torch.testing.assert_close(log_of(place)[0]["actor/kl_loss"], float(kl), atol=1e-5, rtol=1e-4)


def test_without_one_the_reference_is_what_the_training_starts_from():
    with scratch() as place:
        usual(place)
        given = {"actor": KL | {"ppo_mini_batch_size": 2}}
        train(place, **given)
        learning = learned(place, **given)
        assert learning.tensors["reference"].equal(learning.tensors["old_log_probs"])
        lines = log_of(place)
        assert lines[0]["actor/kl_loss"] < 1e-9 and lines[3]["actor/kl_loss"] > 0.01


def test_a_kl_in_the_reward_steers_its_coefficient():
    with scratch() as place:
        usual(place)
        other = text_model(place / "other", seed=9)
        control = {"type": "adaptive", "kl_coef": 0.1, "target_kl": 0.1, "horizon": 10}
        algorithm = {"use_kl_in_reward": True, "kl_penalty": "mse", "kl_ctrl": control}
        given = {"algorithm": algorithm, "ref": {"path": str(other)}}
        trained = train(place, **given)
        last = log_of(place)[-1]
        assert last["actor/reward_kl_penalty"] > 0.1
        state = json.loads((trained / "trainer_state.json").read_text())
        assert state["kl_coef"] == learned(place, **given).facts["kl_coef"]
        assert abs(state["kl_coef"] - 0.1 * (1 + 0.2 * 7 / 10)) < 1e-9
        assert last["critic/rewards/mean"] < last["critic/score/mean"]
        # a later training with the penalty begins with its own coefficient
        for part in ({"use_kl_in_reward": False}, {"kl_ctrl": {"kl_coef": 0.2}}):
            given["trainer"] = {"output_dir": str(place / next(iter(part)))}
            without = train(place, **{**given, "algorithm": algorithm | part})
            assert "kl_coef" not in json.loads((without / "trainer_state.json").read_text())


GAE = {"algorithm": {"adv_estimator": "gae"}}


def test_the_critic_learns_what_is_to_be_expected():
    with scratch() as place:
        usual(place)
        given = {**GAE, "actor": {"ppo_epochs": 30}, "critic": {"optim": {"lr": 0.02}, "cliprange_value": 100.0}}
        trained = train(place, **given)
        steps = log_of(place)[:-1]
        # values are 0 at first: half the mean square of the returns, all of which are the rewards
        learning = learned(place, **given)
        half = float(learning.tensors["returns"].square().mean() / 2)
        torch.testing.assert_close(steps[0]["critic/vf_loss"], half, atol=1e-5, rtol=1e-5)
        assert steps[-1]["critic/vf_loss"] < 0.2 * half
        follow = {**GAE, "critic": {"path": str(trained / "critic")}, "trainer": {"output_dir": str(place / "next")}}
        train(place, **follow)
        values = learned(place, **follow).tensors["values"]
        assert float((values - learning.tensors["returns"]).square().mean() / 2) < 0.2 * half
        assert log_of(place, "next")[-1]["critic/vf_explained_var"] > 0.5


def test_only_the_critic_learns_while_it_warms_up():
    with scratch() as place:
        model, _ = usual(place, iteration=1)
        trained = train(place, **GAE, trainer={"critic_warmup": 2})
        assert_same(model, trained, atol=0, rtol=0)
        line = log_of(place)[0]
        assert line["critic/grad_norm"] > 0 and line["loss"] == line["critic/loss"] and "actor/loss" not in line
        train(place, **GAE, trainer={"critic_warmup": 1, "output_dir": str(place / "next")})
        assert log_of(place, "next")[0]["actor/grad_norm"] > 0


LORA = {"model": {"lora_rank": 4, "lora_alpha": 8}, "actor": {**KL, "ppo_epochs": 4}}


def test_an_adapter_is_trained_and_merged():
    with scratch() as place:
        model, _ = usual(place)
        running = PolicyGradientTrainer(options(place, **LORA), ALONE)
        path = running.run()
        before, after = weights_of(model), weights_of(path)
        assert before.keys() == after.keys()
        changed = {name for name in before if not before[name].equal(after[name])}
        assert changed == {name for name in before if "_proj.weight" in name}
        worker_scores = scores(place, path)
        collate = running.factory.collator(model, running.engines["actor"].module.network)
        own = BatchRunner(running.options, ALONE, running.batch, collate).score(running.engines["actor"])
        torch.testing.assert_close(worker_scores, own, atol=1e-5, rtol=1e-5)


def test_a_training_goes_on_with_the_adapter_of_the_one_before():
    with scratch() as place:
        model, _ = usual(place)
        trained = train(place, **LORA)
        given = {**LORA, "model": {**LORA["model"], "path": str(model), "adapter": str(trained / "adapter")}}
        following = {**given, "trainer": {"output_dir": str(place / "next")}}
        train(place, **following)
        result = learned(place, **following).tensors["old_log_probs"]
        torch.testing.assert_close(result, scores(place, trained), atol=1e-5, rtol=1e-5)
        config = json.loads((place / "next/checkpoint-4/adapter/adapter_config.json").read_text())
        assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (4, 8, str(model))
        other = {**given, "model": {**given["model"], "lora_rank": 2}, "trainer": {"output_dir": str(place / "no")}}
        with check.assertRaisesRegex(TrainingError, "another rank"):
            train(place, **other)


def test_the_adapter_of_a_critic_counts_once_in_the_next_training():
    with scratch() as place:
        usual(place)
        given = {**GAE, "model": LORA["model"], "actor": {"ppo_epochs": 4}, "critic": {"optim": {"lr": 0.02}}}
        trained = train(place, **given)
        critic = {**given["critic"], "path": str(trained / "critic")}
        predicted = {}
        for name, states in (("moments", str(trained / "rl_state")), ("new", None)):
            following = {**given, "critic": critic, "trainer": {"output_dir": str(place / name), "carry_state": states}}
            train(place, **following)
            predicted[name] = learned(place, **following).tensors["values"]
        assert predicted["new"].abs().max() > 0.1
        torch.testing.assert_close(predicted["moments"], predicted["new"], atol=1e-5, rtol=1e-5)


def test_the_reference_of_an_adapter_is_the_model_without_it():
    with scratch() as place:
        model, _ = usual(place)
        trained = train(place, **LORA)
        base = scores(place, model)
        given = {**LORA, "trainer": {"carry_state": str(trained / "rl_state"), "output_dir": str(place / "next")}}
        train(place, **given)
        learning = learned(place, **given)
        torch.testing.assert_close(learning.tensors["reference"], base, atol=1e-5, rtol=1e-5)
        assert (learning.tensors["old_log_probs"] - base).abs().max() > 1e-3
        torch.testing.assert_close(learning.tensors["old_log_probs"], scores(place, trained), atol=1e-5, rtol=1e-5)


def test_carried_weights_are_exact_and_moments_stay():
    with scratch() as place:
        usual(place)
        model = text_model(place / "model", dtype=torch.bfloat16)
        rows = [json.loads(line) for line in (place / "data" / "rows.jsonl").read_text().splitlines()]
        assert len(rows) == 8 and weights_of(model)["model.norm.weight"].dtype == torch.bfloat16
        trained = train(place)
        assert weights_of(trained)["model.norm.weight"].dtype == torch.bfloat16
        exact = torch.load(trained / "rl_state" / "actor" / "states.pt", weights_only=True)
        given = {"trainer": {"carry_state": str(trained / "rl_state"), "output_dir": str(place / "next")}}
        following = PolicyGradientTrainer(options(place, **given), ALONE)
        following._start(None)
        held = dict(following.engines["actor"].weights())
        for name, value in exact["weights"].items():
            assert held[name].equal(value) and value.dtype == torch.float32
        assert any(not value.equal(value.bfloat16().float()) for value in exact["weights"].values())
        states = following.engines["actor"]._optimizer.state_dict()["state"]
        assert all(state["step"] == 1 and state["exp_avg_sq"].any() for state in states.values())


def test_a_warm_up_goes_on_and_changed_optimizer_settings_count():
    with scratch() as place:
        usual(place)
        optim = {"lr": 0.4, "eps": 1e-3, "weight_decay": 0.0, "lr_warmup_steps": 3}
        trained = train(place, actor={"ppo_mini_batch_size": 4, "optim": optim})
        changed = optim | {"eps": 0.1, "weight_decay": 0.5, "betas": [0.5, 0.6]}
        carried = {"carry_state": str(trained / "rl_state"), "output_dir": str(place / "next")}
        given = {"actor": {"ppo_mini_batch_size": 4, "optim": changed}, "trainer": carried}
        following = PolicyGradientTrainer(options(place, **given), ALONE)
        following.run()
        rates = [line["lr"] for name in ("out", "next") for line in log_of(place, name)[:-1]]
        torch.testing.assert_close(rates, [0.1, 0.2, 0.3, 0.4])
        (group,) = following.engines["actor"]._optimizer.param_groups
        assert (group["eps"], group["weight_decay"], group["betas"]) == (0.1, 0.5, (0.5, 0.6))


def test_the_finished_model_has_the_files_of_the_one_before():
    with scratch() as place:
        model, _ = usual(place)
        (model / "tokenizer.json").write_text("{}")
        (model / "chat_template.jinja").write_text("hello")
        trained = train(place)
        assert (trained / "chat_template.jinja").read_text() == "hello" and (trained / "tokenizer.json").is_file()
        assert json.loads((trained / "config.json").read_text()) == json.loads((model / "config.json").read_text())
        state = json.loads((trained / "trainer_state.json").read_text())
        assert (state["global_step"], state["max_steps"]) == (1, 1)
        from transformers import AutoModelForCausalLM

        loaded = AutoModelForCausalLM.from_pretrained(trained)
        assert loaded.lm_head.weight.equal(weights_of(trained)["lm_head.weight"])
