import json

import pytest
from typer.testing import CliRunner

from benchmarks import cli, cli_bare
from benchmarks.harness import Series
from webgym_cli.errors import JobError


def test_the_bare_app_has_as_many_commands_as_webgym():
    result = CliRunner().invoke(cli_bare.make_app(cli.commands()), ["--help"])
    assert result.stdout.count("  command-") == cli.commands() > 20


@pytest.mark.parametrize(
    ("command", "times"), [("--help", 2), ("status", 3), ("inspect-buffer", 8), ("train --dry-run", 3.15)]
)
def test_a_command_may_take_so_many_times_the_bare_apps_help(command, times):
    bare = Series((0.1, 0.1))
    took = [Series((0.1 * times + more,) * 2) for more in (-0.01, 0.01)]
    assert [cli._row(f"webgym {command}", values, bare, {}).met for values in took] == [True, False]


def test_each_command_is_timed_once_a_turn(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(cli, "timed", lambda call: called.append(call) or float(len(called)))
    rows = cli.measured(tmp_path, 2)
    commands = ("--help", "rollout --help", "status", "inspect-buffer", "train --dry-run")
    assert [row.case for row in rows] == [f"webgym {command}" for command in commands]
    assert len(called) == 19  # the first prepares a training
    assert (rows[0].values.values, rows[0].baseline_values.values) == ((8.0, 14.0), (9.0, 15.0))


def test_a_run_gives_rows_of_json(capsys, monkeypatch):
    monkeypatch.setattr(cli, "timed", lambda call: 1.0)
    assert cli.main(["--quick"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["repeats"] for row in rows] == [5] * 5
    assert rows[0]["target"] == 0.5


def test_a_failure_has_its_code(monkeypatch, capsys):
    def failing(*_):
        raise JobError("no", hint="webgym doctor")

    monkeypatch.setattr(cli, "measured", failing)
    assert cli.main([]) == 4
    assert "next: webgym doctor" in capsys.readouterr().err


def test_a_command_that_fails_is_no_measurement():
    with pytest.raises(cli.subprocess.CalledProcessError):
        cli.timed(("false",))
