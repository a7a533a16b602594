"""What is made from the code is as the code has it."""

import json
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from typer.testing import CliRunner

from tests.app import app
from tests.docs.generated import FORMATS, RECORDS, SETTINGS, documents, listed
from tests.docs.pages import table_rows
from tests.docs.reference import fields_table, settings_reference
from webgym_cli.config.load import flatten, known_keys
from webgym_cli.config.model import FROZEN_FOR_A_RUN, Settings
from webgym_cli.config.renamed import RENAMED
from webgym_cli.store.index.schema import TABLES

AGAIN = "write it anew: .venv/bin/python -m tests.docs.generated"


class Inner(BaseModel):
    """Something inside."""

    size: int


class Sample(BaseModel):
    """Fields of every kind."""

    model_config = ConfigDict(use_attribute_docstrings=True, populate_by_name=True)

    schema_: Literal[1] = Field(default=1, alias="schema")
    share: float | None = Field(default=None, gt=0, le=1)
    """Over two
    lines, a | b."""
    inner: Inner
    many: tuple[Inner, ...] = ()
    pair: tuple[int, str] = (1, "a")
    weights: dict[str, float] = Field(default_factory=dict)


def test_a_table_of_fields_says_what_the_record_says():
    assert fields_table(Sample).splitlines()[2:] == [
        "| `schema` | `1` | `1` |  |",
        "| `share` | number > 0, ≤ 1 or null | `null` | Over two lines, a \\| b. |",
        "| `inner` | [Inner](#inner) | required |  |",
        "| `many` | list of [Inner](#inner) | `[]` |  |",
        '| `pair` | list of 2: whole number, text | `[1, "a"]` |  |',
        "| `weights` | mapping of text to number | `{}` |  |",
    ]


@pytest.mark.parametrize("path", [SETTINGS, FORMATS], ids=lambda path: path.name)
def test_a_page_is_as_the_code_makes_it(path):
    assert path.read_text() == documents()[path], AGAIN


def test_every_record_of_the_page_is_listed_once():
    assert sorted(listed()) == sorted(RECORDS)


def test_the_command_prints_values_and_meanings():
    result = CliRunner().invoke(app, ["config", "show", "-s", "rollout.episodes=7"])
    rows = dict(line.split("\t", 1) for line in result.stdout.splitlines())
    assert rows["rollout.episodes"].startswith("7\t-s rollout.episodes\t")
    assert rows.keys() >= known_keys().keys() - {"sites"}
    assert all(len(row.split("\t")) == 3 for row in rows.values())


def test_every_setting_has_its_row_with_default_and_meaning():
    page, _, old_names = settings_reference().partition("## Old names")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    by_key = {row[0].removeprefix("| ").strip("`"): row for row in rows}
    defaults = flatten(Settings().model_dump(mode="json"))
    assert list(by_key) == list(known_keys())
    assert all(f"| `{old}` | `{new}` |" in old_names for old, new in RENAMED.items())
    for key, row in by_key.items():
        assert row[2] == f"`{json.dumps(defaults.get(key, {}))}`"
        assert row[3].removesuffix("*kept* |").removesuffix("|").strip(), f"{key} has no docstring"
        assert ("*kept*" in row[3]) is any(f"{key}.".startswith(f"{name}.") for name in FROZEN_FOR_A_RUN)


@pytest.mark.parametrize("table", TABLES)
def test_the_columns_of_the_index_are_listed(table):
    rows = table_rows(FORMATS, f"### `{table}`")
    assert [(row[0].strip("`"), row[1]) for row in rows] == list(TABLES[table].items())
    assert all(row[2] for row in rows)
