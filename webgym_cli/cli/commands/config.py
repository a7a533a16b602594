"""`webgym config`: the settings, where each value came from, and their schema."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from webgym_cli.cli.manual import command, make_group
from webgym_cli.cli.options import DataOptions
from webgym_cli.cli.output import Output
from webgym_cli.util.json_values import as_text
from webgym_cli.util.optional import when

app = make_group("Show the settings and their schema.")

RunOpt = Annotated[Path | None, typer.Option("--run", metavar="RUN", help="Start from the settings of this run.")]


@command(app)
def show(options: DataOptions, run: RunOpt = None) -> None:
    """Print every setting with its value and its source.

    In a pipe, and with --json, also with its meaning.

    Examples:
      webgym config show | grep -F rollout.episodes
      webgym config show -c demo -s rollout.episodes=64
      webgym config show --run runs/a --json | jq 'select(.source!="default")'

    Exit codes: 3.

    See also: webgym config schema.
    """
    from webgym_cli.config.load import flat_values, load_with_sources
    from webgym_cli.config.model import Settings
    from webgym_cli.store.find_run import open_run

    run_config = open_run(run)[0].config if run else None
    settings, sources = load_with_sources(options.config or (), options.set_ or (), run_config=run_config)
    output, values = Output(as_json=options.json), flat_values(settings)
    # A terminal has no room for them.
    meanings = {} if sys.stdout.isatty() and not options.json else dict(_read_meanings(Settings.model_json_schema()))
    if options.json:
        for key, value in values.items():
            output.data({"key": key, "value": value, "source": sources[key], "meaning": meanings.get(key, "")})
        return
    columns = ("setting", "value", "source", *when(meanings, ("meaning",)))
    rows = ((key, as_text(value), sources[key], meanings.get(key, "")) for key, value in values.items())
    output.table("", columns, (row[: len(columns)] for row in rows))


@command(app)
def schema() -> None:
    """Print the JSON schema of the settings.

    Includes the help text of each setting, for editors and validators.

    Examples:
      webgym config schema > webgym.schema.json

    See also: webgym config show.
    """
    from webgym_cli.config.model import Settings

    Output().text(json.dumps(Settings.model_json_schema(), indent=2))


def _read_meanings(schema: dict[str, Any], section: str = "", prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the settings of a section and their meanings. `schema`: that of all settings."""
    for name, node in (schema["$defs"][section] if section else schema)["properties"].items():
        inner = node.get("$ref", "").rpartition("/")[2]
        if "properties" in schema["$defs"].get(inner, {}):
            yield from _read_meanings(schema, inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", " ".join(node.get("description", "").split())
