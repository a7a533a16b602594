import json
import unittest

from tiny import scratch

from webgym_cli.train.rl.options import Optim, TrainerOptions
from webgym_cli.train.rl.settings import TrainingError, build, read_options

check = unittest.TestCase()
LEAST = {"data": "d", "model": {"path": "m"}, "trainer": {"output_dir": "o"}}


def refused(text, **more):
    with check.assertRaisesRegex(TrainingError, text):
        build(TrainerOptions, LEAST | more, "c.json")


def test_the_example_s_names_and_defaults():
    made = build(TrainerOptions, LEAST | {"actor": {"use_kl_loss": True, "optim": {"lr": 1, "betas": [0.8, 0.9]}}}, "c")
    assert (made.actor.clip_ratio, made.actor.clip_ratio_c, made.actor.ppo_epochs) == (0.2, 3.0, 1)
    assert (made.actor.optim.lr, made.actor.optim.betas) == (1, (0.8, 0.9))
    assert (made.needs_reference, made.needs_critic) == (True, False)
    assert made.algorithm.kl_ctrl.kl_coef == 0.001
    assert build(TrainerOptions, LEAST | {"algorithm": {"adv_estimator": "gae"}}, "c").needs_critic


def test_what_does_not_fit_is_named_with_its_place():
    refused(r"c.json: actor: clip_ration: no such setting; did you mean clip_ratio\?", actor={"clip_ration": 0.1})
    refused("c.json: zebra: no such setting; known are data, model", zebra=1)
    refused('c.json: actor: optim: lr: "fast" is not a number', actor={"optim": {"lr": "fast"}})
    refused("c.json: actor: ppo_epochs: true is not a whole number", actor={"ppo_epochs": True})
    refused('c.json: algorithm: adv_estimator: "ppo" is not one of grpo, rloo', algorithm={"adv_estimator": "ppo"})
    refused("c.json: model: 3 is not an object", model=3)
    refused("c.json: model: path: is missing", model={})
    refused(r"c.json: actor: clip_ratio_c must be above 1, not 0.5", actor={"clip_ratio_c": 0.5})
    refused("c.json: actor: ppo_epochs must be 1 or more", actor={"ppo_epochs": 0})
    refused("c.json: algorithm: gamma must be from 0 to 1", algorithm={"gamma": 2})


def test_files_that_hold_no_settings():
    with scratch() as place:
        for text, wanted in (("{", "is no JSON"), ("[]", "a JSON object is wanted")):
            (place / "c.json").write_text(text)
            with check.assertRaisesRegex(TrainingError, wanted):
                read_options(place / "c.json")
        (place / "c.json").write_text(json.dumps(LEAST))
        assert read_options(place / "c.json").model.path == "m"
        with check.assertRaisesRegex(TrainingError, "can't be read"):
            read_options(place / "none.json")


def test_the_learning_rate_rises_and_stays():
    assert [Optim(lr=0.4, lr_warmup_steps=3).rate(step) for step in range(5)] == [
        0.1,
        0.2,
        0.30000000000000004,
        0.4,
        0.4,
    ]
    assert Optim(lr=0.4).rate(0) == 0.4
