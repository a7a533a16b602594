"""What may be replayed: settings."""

import json

import pytest

from webgym_cli.config.load import load
from webgym_cli.errors import SettingsError


def test_the_defaults_are_webrl_s():
    replay = load().rl.replay
    assert replay.window == pytest.approx((1.0526315789, 2.0))
    assert (replay.ratio, replay.one_per_task, replay.experience) == (2.0, True, ())


def test_an_open_window_survives_its_file(tmp_path):
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
def test_wrong_ones_are_named(override, reply):
    with pytest.raises(SettingsError, match=reply):
        load(overrides=[override])
