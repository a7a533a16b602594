"""`webgym config`: the settings, where each value came from, their schema and their reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from webgym_cli.cli import completion as complete
from webgym_cli.cli.manual import command, make_group
from webgym_cli.cli.options import DataOptions
from webgym_cli.cli.output import Output

app = make_group("Show the settings, their schema, their reference.")

RunOpt = Annotated[
    Path | None,
    typer.Option("--run", metavar="RUN", help="Start from the settings of this run.", autocompletion=complete.runs),
]


@command(app)
def show(options: DataOptions, run: RunOpt = None) -> None:
    """Print every setting with its value and its source.

    Examples:
      webgym config show -c demo -s rollout.episodes=64
      webgym config show --run runs/a --json | jq 'select(.source!="default")'

    Exit codes: 3.

    See also: webgym config reference, webgym config schema.
    """
    from webgym_cli.config.load import flat_values, load_with_sources
    from webgym_cli.store.run import open_run

    run_config = open_run(run)[0].config if run else None
    settings, sources = load_with_sources(options.config or (), options.set_ or (), run_config=run_config)
    output, values = Output(as_json=options.json), flat_values(settings)
    if options.json:
        for key, value in values.items():
            output.data({"key": key, "value": value, "source": sources[key]})
    else:
        output.table(
            "", ("setting", "value", "source"), ((key, _text(value), sources[key]) for key, value in values.items())
        )


@command(app)
def schema() -> None:
    """Print the JSON schema of the settings.

    Includes the help text of each setting, for editors and validators.

    Examples:
      webgym config schema > webgym.schema.json

    See also: webgym config show, webgym config reference.
    """
    from webgym_cli.config.model import Settings

    Output().text(json.dumps(Settings.model_json_schema(), indent=2))


@command(app)
def reference() -> None:
    """Print all settings as a Markdown page.

    Lists the values, the default and the meaning of each.

    Examples:
      webgym config reference > docs/settings.md

    See also: webgym config show, webgym config schema.
    """
    from webgym_cli.config.reference import settings_reference

    Output().text(settings_reference())


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
