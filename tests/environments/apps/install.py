"""Installs the real applications of these tests: python -m tests.environments.apps.install. `make test` does so."""

from pathlib import Path

from benchmarks.marks_apps import install
from webgym_cli.venvs.locate import role_home


def apps_folder() -> Path:
    """Return where the applications are installed, beside the role environments."""
    return role_home() / "apps"


if __name__ == "__main__":
    install(apps_folder())
