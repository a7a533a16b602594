"""Options that stand for settings."""

import sys
from pathlib import Path
from unittest import mock

from tests.tables import each
from webgym_cli.cli.main import _name_files
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


@each(
    ("arguments", "files"),
    [
        (["-c", "my site.yaml", "-s", "seed=1", "-ca.yaml"], " -c 'my site.yaml' -c a.yaml"),
        (["--config", "it's.yaml", "--config=$HOME.yaml"], """ -c 'it'"'"'s.yaml' -c '$HOME.yaml'"""),
        ([], ""),
    ],
)
def test_a_hint_to_log_in_names_the_files_as_a_shell_reads_them(arguments, files):
    with mock.patch.object(sys, "argv", ["webgym", "rollout", "run", *arguments]):
        assert _name_files("webgym login desk --role agent") == f"webgym login desk --role agent{files}"
        assert _name_files("webgym doctor") == "webgym doctor"
