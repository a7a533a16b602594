"""Settings that have no effect without another one."""

import pytest

from webgym_cli.config.load import load
from webgym_cli.config.partners import list_ineffective


@pytest.mark.parametrize(
    ("given", "partner"),
    [
        ("judge.protocol=webgym2", "judge.base_url=http://h/v1"),
        ("judge.model=m", "judge.base_url=scripted"),
        ("judge.votes=3", "judge.base_url=scripted"),
        ('judge.jobs={"key_points": {"base_url": "http://h/v1"}}', "judge.base_url=scripted"),
        ('tasks.difficulty_ratio={"easy": 1, "hard": 1}', "tasks.sampler=ratio"),
        ("rollout.completion_grace=5", "rollout.completion_threshold=0.9"),
        ("rollout.ray_address=h:6379", "rollout.executor=ray"),
        ("rollout.ray_cpus=2", "rollout.executor=ray"),
        ("train.nodes=2", "train.executor=ray"),
        ("loop.max_staleness=2", "loop.mode=async"),
        ("loop.stale=drop", "loop.mode=async"),
        ("rl.actor.kl_loss_coef=0.1", "rl.actor.use_kl_loss=true"),
        ("rl.algorithm.kl_ctrl.type=adaptive", "rl.algorithm.use_kl_in_reward=true"),
        ("loop.demonstration_episodes=9", "loop.demonstration_iterations=1"),
    ],
)
def test_a_setting_without_its_partner_is_named(given, partner):
    (note,) = list_ineffective(load(overrides=[given]))
    assert note.startswith(given.partition("=")[0]) and partner.partition("=")[0].rpartition(".")[0] in note
    assert list_ineffective(load(overrides=[given, partner])) == []


def test_settings_with_an_effect_have_no_note():
    assert list_ineffective(load()) == []
    assert list_ineffective(load(overrides=["rollout.ray_address=h:6379", "train.executor=ray"])) == []
    assert list_ineffective(load(overrides=["train.nodes=1"])) == []
