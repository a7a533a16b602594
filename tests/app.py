"""The app with all commands."""

from webgym_cli.cli.app import build_app

app = build_app()
