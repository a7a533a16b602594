"""Options that stand for settings."""

from pathlib import Path

from webgym_cli.cli.options import StageOptions, format_overrides
from webgym_cli.cli.stage import resolve
from webgym_cli.records.task import Split


def test_texts_stay_texts(tmp_path):
    values = {"rollout.agent": "true", "policy_config.base_model": "2024", "tasks.train": None}
    settings = resolve(Path(tmp_path / "run"), StageOptions(), values)[1]
    assert (settings.rollout.agent, settings.policy_config.base_model) == ("true", "2024")
    assert settings.tasks.train == resolve(Path(tmp_path / "run"), StageOptions())[1].tasks.train


def test_other_values_are_as_the_command_line_has_them():
    values = {"a": 1.5, "b": None, "c": False, "d": Split.TEST}
    assert format_overrides(values) == ["a=1.5", "c=false", 'd="test"']
