"""Makes the settings reference `docs/settings.md` from the model, and the tables of records."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from webgym_cli.config.cost import TokenPrices
from webgym_cli.config.endpoint import ChatEndpointSettings
from webgym_cli.config.load import flat_values, is_frozen
from webgym_cli.config.model import Settings
from webgym_cli.config.renamed import RENAMED
from webgym_cli.config.sites import SiteAccount, SiteSettings

# A part of a JSON schema.
Node = Mapping[str, Any]

INTRODUCTION = """\
# Settings

`webgym config show` prints the values that a command would use and the source of each, in a pipe also their meaning:
`webgym config show | grep -F rollout.episodes`. `webgym config schema` prints the JSON schema for editors.

Later sources override earlier ones: the defaults below, the run's own settings, `-c FILE` (repeatable), the
environment, `-s`. Four ways to set a value:

| where | how |
|---|---|
| file for `-c`, YAML or JSON | `rollout: {episodes: 64}` |
| environment | `WEBGYM_ROLLOUT__EPISODES=64` |
| command line | `-s rollout.episodes=64` |
| the run's `config.json` | written by the first command on the run |

Values on the command line are read as JSON if they are valid JSON, else as text: `-s 'filters.difficulties=["easy"]'`,
`-s algorithm_config.deepspeed_config_filename=null`. Settings that are marked *kept* can't change within a run: its
data would no longer be comparable.
"""
NUMBERS = {"integer": "whole number", "number": "number"}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def settings_reference() -> str:
    """Return the page: one table per section, one row per setting, in the order of the model."""
    schema = Settings.model_json_schema()
    defaults = flat_values(Settings())
    tables: dict[str, list[str]] = {}
    for key, node in _iterate_settings(schema, schema["$defs"]):
        meaning = f"{_join_description(node)}{' *kept*' if is_frozen(key) else ''}"
        row = _format_row(
            f"`{key}`", _describe_type(node, schema["$defs"]), f"`{json.dumps(defaults.get(key, {}))}`", meaning
        )
        tables.setdefault(key.split(".")[0] if "." in key else "", []).append(row)
    pages = [INTRODUCTION]
    for section, rows in tables.items():
        if section:
            node = _resolve_reference(schema["properties"][section], schema["$defs"])
            pages.append(f"## {section}\n\n{_join_description(node)}\n")
        pages.append(f"{_format_table(('setting', 'value', 'default', 'meaning'), rows)}\n")
    old_names = [_format_row(f"`{old}`", f"`{new}`") for old, new in RENAMED.items()]
    pages.append(f"## Old names\n\nThese still work, with a note.\n\n{_format_table(('old name', 'now'), old_names)}\n")
    pages.append(
        f"## ChatEndpointSettings\n\nThe fields of a job of `judge.jobs`.\n\n{fields_table(ChatEndpointSettings)}\n"
        f"## TokenPrices\n\nThe fields of a model of `cost.prices`.\n\n{fields_table(TokenPrices)}\n"
    )
    for record, what in ((SiteSettings, "a site of `sites`"), (SiteAccount, "an entry of `sites.NAME.accounts`")):
        pages.append(f"## {record.__name__}\n\nThe fields of {what}.\n\n{fields_table(record)}\n")
    return "\n".join(pages).rstrip()


def fields_table(record: type[BaseModel]) -> str:
    """Return a table of a record's stored fields, one row per field in the order of the record."""
    schema = record.model_json_schema(by_alias=True, mode="validation")
    required = schema.get("required", ())
    rows = []
    for name, node in schema["properties"].items():
        value = node.get("default", {})
        default = "each field's own" if isinstance(value, dict) and value else f"`{json.dumps(value)}`"
        rows.append(
            _format_row(
                f"`{name}`",
                _describe_type(node, schema.get("$defs", {})),
                "required" if name in required else default,
                _join_description(node),
            )
        )
    return _format_table(("field", "value", "default", "meaning"), rows)


def _iterate_settings(node: Node, definitions: Node, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Yield every setting with its dotted key."""
    for name, child in node["properties"].items():
        target = _resolve_reference(child, definitions)
        if "properties" in target:
            yield from _iterate_settings(target, definitions, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", child


def _resolve_reference(node: Node, definitions: Node) -> Node:
    """Resolve a `$ref` node; any other node is returned unchanged."""
    if "$ref" not in node:
        return node
    child: Node = definitions[node["$ref"].rpartition("/")[2]]
    return child


def _describe_type(node: Node, definitions: Node) -> str:
    """Describe the allowed values of a node."""
    # Optional fields, and unions.
    if "anyOf" in node:
        return " or ".join(_describe_type(choice, definitions) for choice in node["anyOf"])
    target = _resolve_reference(node, definitions)
    if "properties" in target:
        name = node["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    # A Literal of one value is a `const` in JSON schema.
    if values := target.get("enum") or ([target["const"]] if "const" in target else []):
        return ", ".join(f"`{value}`" for value in values)
    kind = target.get("type", "anything")
    if kind == "array" and "prefixItems" in target:
        places = [_describe_type(place, definitions) for place in target["prefixItems"]]
        return f"list of {len(places)}: {', '.join(places)}"
    if kind == "array":
        return f"list of {_describe_type(target['items'], definitions)}"
    if kind == "object":
        values = target.get("additionalProperties", True)
        of = "anything" if values is True else _describe_type(values, definitions)
        keys = _describe_type(target["propertyNames"], definitions) if "propertyNames" in target else "text"
        return f"mapping of {keys} to {of}"
    return _describe_plain(target, kind)


def _describe_plain(node: Node, kind: str) -> str:
    if kind == "string":
        pattern = f" like `{node['pattern']}`" if "pattern" in node else ""
        return f"{'moment' if node.get('format') == 'date-time' else 'text'}{pattern}"
    limits = [f"{sign} {node[bound]}" for bound, sign in BOUNDS.items() if bound in node]
    return " ".join([{"boolean": "true, false"}.get(kind, NUMBERS.get(kind, kind)), ", ".join(limits)]).rstrip()


def _join_description(node: Node) -> str:
    """Return a node's help as one line."""
    return " ".join(str(node.get("description", "")).split())


def _format_table(head: tuple[str, ...], rows: list[str]) -> str:
    return "\n".join([_format_row(*head), "|---" * len(head) + "|", *rows])


def _format_row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
