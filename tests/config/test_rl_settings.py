import json

import pytest
from pydantic import ValidationError

from tests.tables import each
from webgym_cli.config.load import load
from webgym_cli.config.rl import ActorSettings, CriticOptimSettings, CriticSettings, RlSettings
from webgym_cli.config.section import keys_of
from webgym_cli.config.suggest import explain, suggest
from webgym_cli.errors import SettingsError


def test_a_run_sets_them_like_all_others(tmp_path, monkeypatch):
    file = tmp_path / "rl.yaml"
    file.write_text("rl:\n  data: {group_by: start}\n  critic: {optim: {weight_decay: 0}}\n")
    monkeypatch.setenv("WEBGYM_RL__ACTOR__OPTIM__BETAS", "[0.8, 0.9]")
    given = ["train.algorithm=gae", "rl.algorithm.kl_ctrl.type=adaptive", "rl.trainer.deepspeed=x.json"]
    settings = load([file], given)
    assert (settings.train.algorithm, settings.rl.data.group_by) == ("gae", "start")
    assert settings.rl.trainer.deepspeed == "x.json"
    assert settings.rl.critic.optim == CriticOptimSettings(lr=1e-5, weight_decay=0)
    assert settings.rl.actor.optim.betas == (0.8, 0.9)
    assert settings.rl.algorithm.kl_ctrl.type == "adaptive"


def test_a_run_imitates_as_it_comes():
    assert load().train.algorithm == "sft"
    assert load().rl == RlSettings()


@each(
    ("override", "words"),
    [
        ("rl.data.last_n_iterations=0", "greater than or equal to 1"),
        ("rl.data.max_row_tokens=1", "greater than or equal to 2"),
        ("rl.data.group_by=site", "'chain', 'task' or 'start'"),
        ("rl.model.lora_rank=-1", "greater than or equal to 0"),
        ("rl.algorithm.gamma=1.1", "less than or equal to 1"),
        ("rl.algorithm.lam=1.5", "less than or equal to 1"),
        ("rl.algorithm.kl_ctrl.kl_coef=-1", "greater than or equal to 0"),
        ("rl.algorithm.kl_ctrl.target_kl=0", "greater than 0"),
        ("rl.algorithm.kl_ctrl.horizon=0", "greater than or equal to 1"),
        ("rl.algorithm.rollout_correction.rollout_is_threshold=0.9", "greater than or equal to 1"),
        ("rl.actor.optim.lr=0", "greater than 0"),
        ("rl.actor.clip_ratio_low=1.1", "less than or equal to 1"),
        ("rl.actor.clip_ratio_high=-0.1", "greater than or equal to 0"),
        ("rl.actor.clip_ratio_c=1.0", "greater than 1"),
        ("rl.actor.loss_mode=ppo", "'vanilla', 'gspo' or 'cispo'"),
        ("rl.actor.grad_clip=0", "greater than 0"),
        ("rl.actor.loss_scale_factor=0", "greater than or equal to 1"),
        ("rl.critic.cliprange_value=0", "greater than 0"),
        ("rl.trainer.save_freq=-1", "greater than or equal to 0"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(override, words):
    key = override.partition("=")[0]
    with pytest.raises(SettingsError) as caught:
        load(overrides=[override])
    assert str(caught.value).startswith(f"-s {key}: {key}: ") and str(caught.value).endswith(words)


def test_the_ratio_s_range_is_the_same_on_both_sides_or_two():
    both, apart = ActorSettings(clip_ratio=0.3), ActorSettings(clip_ratio=3, clip_ratio_low=0.1, clip_ratio_high=0.4)
    assert ((both.low, both.high), (apart.low, apart.high)) == ((0.3, 0.3), (0.1, 0.4))


def test_values_that_contradict_each_other_are_refused():
    with pytest.raises(ValidationError) as caught:
        ActorSettings(clip_ratio=1.5)
    words = "clip_ratio must be at most 1, not 1.5, or clip_ratio_low must be given"
    assert explain(caught.value, ActorSettings) == ("", words)


@pytest.mark.parametrize(
    ("preset", "values"),
    [
        ("dapo", {"low": 0.2, "high": 0.28, "clip_ratio_c": 10, "loss_agg_mode": "token-mean", "loss_mode": "vanilla"}),
        ("dr-grpo", {"low": 0.2, "high": 0.2, "loss_agg_mode": "seq-mean-token-sum-norm", "loss_mode": "vanilla"}),
        ("gspo", {"low": 3e-4, "high": 4e-4, "loss_agg_mode": "seq-mean-token-mean", "loss_mode": "gspo"}),
        ("cispo", {"low": 1.0, "high": 4.0, "loss_agg_mode": "token-mean", "loss_mode": "cispo"}),
    ],
)
def test_a_preset_changes_the_objective_of_a_recipe(preset, values):
    """By the published numbers; what is said in the recipe of its model and data stays."""
    settings = load(["gsm8k", preset])
    assert {name: getattr(settings.rl.actor, name) for name in values} == values
    assert (settings.rl.actor.use_kl_loss, settings.rl.algorithm.use_kl_in_reward) == (False, False)
    assert (settings.policy_config.base_model, settings.agent.num_chains) == ("Qwen/Qwen2.5-3B-Instruct", 8)
    assert settings.rl.algorithm.norm_adv_by_std_in_grpo is (preset != "dr-grpo")
    assert settings.rl.data.filter_groups.enable is (preset == "dapo")


def test_the_first_problem_is_explained_an_unknown_key_before_all_others():
    with pytest.raises(ValidationError) as caught:
        RlSettings.model_validate({"actor": {"grad_clip": -1, "optim": {"lrr": 1}}, "critic": {"grad_clip": 0}})
    words = "unknown setting; did you mean 'actor.optim.lr'? (and 2 more)"
    assert explain(caught.value, RlSettings) == ("actor.optim.lrr", words)


def test_a_name_that_only_one_section_has_is_meant_whatever_the_section():
    keys = keys_of(CriticSettings)
    assert list(keys)[:3] == ["path", "optim.lr", "optim.weight_decay"]
    assert suggest("adam.weight_decay", keys)[0] == "optim.weight_decay"
    assert suggest("zebra", keys) == ("", "")


def test_the_defaults_of_what_is_replayed_are_webrl_s():
    replay = load().rl.replay
    assert replay.window == pytest.approx((1.0526315789, 2.0))
    assert (replay.ratio, replay.one_per_task, replay.experience) == (2.0, True, ())


def test_an_open_window_survives_its_file():
    settings = load(overrides=["rl.replay.window=[1.5, null]", 'rl.replay.experience=["runs/sft", "runs/b"]'])
    assert settings.rl.replay.window == (1.5, None)
    assert settings.rl.replay.experience == ("runs/sft", "runs/b")
    assert type(settings).model_validate(json.loads(settings.model_dump_json())) == settings


@pytest.mark.parametrize(
    ("override", "reply"),
    [
        ("rl.replay.window=[2, 1.5]", "no perplexity is from 2 on and below 1.5"),
        ("rl.replay.window=[0.5, 0.95]", "greater than or equal to 1"),
        ("rl.replay.ratio=-1", "greater than or equal to 0"),
    ],
)
def test_what_can_not_be_replayed_is_named(override, reply):
    with pytest.raises(SettingsError, match=reply):
        load(overrides=[override])
