"""Options that stand for settings."""

from pathlib import Path

from tests.tables import each
from webgym_cli.cli.options import StageOptions, format_overrides, name_files
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
    ("config", "files"),
    [
        (["my site.yaml", "a.yaml"], " -c 'my site.yaml' -c a.yaml"),
        (["it's.yaml", "$HOME.yaml"], """ -c 'it'"'"'s.yaml' -c '$HOME.yaml'"""),
        ([], ""),
    ],
)
def test_a_hint_to_log_in_names_the_files_as_a_shell_reads_them(config, files):
    assert name_files("webgym login desk --role agent", config) == f"webgym login desk --role agent{files}"
    assert name_files("webgym doctor", config) == "webgym doctor"
