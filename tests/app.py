"""The app with all commands, in this process."""

from typing import Any

from typer.testing import CliRunner, Result

from webgym_cli.cli.app import build_app

app = build_app()


def invoke(*arguments: object, **options: Any) -> Result:
    """Run a command to its end; its own errors are the result's."""
    return CliRunner().invoke(app, list(map(str, arguments)), **options)


def call(*arguments: object, **options: Any) -> tuple[str, str]:
    """Run a command that has to succeed; gives stdout and stderr. Raises the command's own errors."""
    result = invoke(*arguments, **options)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr
