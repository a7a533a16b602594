import json
import unittest

from tiny import options, scratch, usual

from webgym_cli.config.rl import OptimSettings, RlSettings
from webgym_cli.trainer.data import read_batch
from webgym_cli.trainer.options import TrainingError, parse_options, read_options
from webgym_cli.trainer.ppo.trainer import digest

check = unittest.TestCase()
LEAST = {"data": "d", "model": {"path": "m"}, "trainer": {"output_dir": "o"}}


def read(**more):
    return parse_options(json.dumps(LEAST | more), "c.json")


def refused(text, **more):
    with check.assertRaisesRegex(TrainingError, f"^{text}$"):
        read(**more)


def test_the_example_s_names_and_defaults():
    result = read(actor={"use_kl_loss": True, "optim": {"lr": 1, "betas": [0.8, 0.9]}})
    assert (result.actor.clip_ratio, result.actor.clip_ratio_c, result.actor.ppo_epochs) == (0.2, 3.0, 1)
    assert (result.actor.optim.lr, result.actor.optim.betas) == (1, (0.8, 0.9))
    assert (result.needs_reference, result.needs_critic) == (True, False)
    assert (result.algorithm.adv_estimator, result.algorithm.kl_ctrl.kl_coef) == ("grpo", 0.001)
    assert (result.critic.optim.lr, result.model.logprob_chunk, result.trainer.carry_state) == (1e-5, 1024, None)
    assert read(algorithm={"adv_estimator": "gae"}).needs_critic


def test_a_run_s_settings_are_the_trainer_s():
    run = RlSettings(algorithm={"gamma": 0.5}, actor={"optim": {"betas": [0.5, 0.6]}}, trainer={"save_freq": 7})
    result = read(**run.model_dump(mode="json", exclude={"data", "replay", "model", "trainer"}))
    assert (result.algorithm.gamma, result.actor, result.critic, result.ref) == (0.5, run.actor, run.critic, run.ref)
    assert (result.webrl, result.needs_critic, result.needs_reference) == (run.webrl, True, True)
    model = read(model=run.model.model_dump() | {"path": "m"}).model
    assert model.model_dump(exclude={"path", "adapter", "trust_remote_code", "logprob_chunk"}) == run.model.model_dump()
    assert read(trainer=run.trainer.model_dump() | {"output_dir": "o"}).trainer.save_freq == 7


def test_what_does_not_fit_is_named_with_its_place():
    near = "c.json: actor.clip_ration: unknown setting; did you mean 'actor.clip_ratio'[?]"
    refused(near, actor={"clip_ration": 0.1})
    refused(near + r" \(and 1 more\)", actor={"clip_ration": 0.1}, ref={"path": 3})
    refused("c.json: lr: unknown setting", lr=1)  # two have that name
    refused("c.json: actor.optim.lr: Input should be a valid number", actor={"optim": {"lr": "1e-6"}})
    refused("c.json: actor.ppo_epochs: Input should be a valid integer", actor={"ppo_epochs": True})
    refused("c.json: model: it should be a table of names and values", model=3)
    refused("c.json: model.path: Field required", model={})
    refused("c.json: actor: clip_ratio must be at most 1, not 1.5, or .*", actor={"clip_ratio": 1.5})
    refused("c.json: actor.clip_ratio_c: Input should be greater than 1", actor={"clip_ratio_c": 0.5})
    refused("c.json: algorithm.gamma: Input should be less than or equal to 1", algorithm={"gamma": 2})
    refused("c.json: actor.optim.betas.1: Input should be less than 1", actor={"optim": {"betas": [0.9, 1.0]}})


def test_a_training_s_name_is_that_of_what_it_learns():
    with scratch() as place:
        usual(place)
        given = options(place, actor={"ppo_epochs": 2, "shuffle": False}, trainer={"seed": 3})
        batch = read_batch(place / "data")
        trainer = {"save_freq": 5, "seed": 3, "output_dir": str(place / "elsewhere")}
        same = options(place, trainer=trainer, actor={"shuffle": False, "ppo_epochs": 2})
        moved = same.model_copy(update={"data": "elsewhere"})
        assert digest(moved, batch) == digest(given, batch)
        batch_digests = set()
        for run in ("a/run", "b/run"):
            config = place / run / "zero.json"
            config.parent.mkdir(parents=True)
            config.write_text('{"zero_optimization": {"stage": 1}}')
            folders = {"output_dir": f"{place}/{run}/checkpoints/n.partial", "deepspeed": str(config)}
            carried = {"carry_state": f"{place}/{run}/checkpoints/m/rl_state"}
            model = {"path": f"{place}/{run}/checkpoints/m"}
            batch_digests.add(digest(options(place, model=model, trainer=folders | carried), batch))
        assert len(batch_digests) == 1
        assert digest(options(place, actor={"ppo_epochs": 2, "shuffle": False}), batch) != digest(given, batch)


def test_files_that_hold_no_settings():
    with scratch() as place:
        for text, wanted in (("{", "Invalid JSON: EOF"), ("[]", "it should be a table of names and values")):
            (place / "c.json").write_text(text)
            with check.assertRaisesRegex(TrainingError, wanted):
                read_options(place / "c.json")
        (place / "c.json").write_text(json.dumps(LEAST))
        assert read_options(place / "c.json").model.path == "m"
        with check.assertRaisesRegex(TrainingError, "can't be read"):
            read_options(place / "none.json")


def test_the_learning_rate_rises_and_stays():
    rates = [round(OptimSettings(lr=0.4, lr_warmup_steps=3).rate(step), 9) for step in range(5)]
    assert rates == [0.1, 0.2, 0.3, 0.4, 0.4]
    assert OptimSettings(lr=0.4).rate(0) == 0.4
