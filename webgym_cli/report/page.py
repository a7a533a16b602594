"""A report, or a comparison, as one HTML page that needs nothing else: no network, no other file.

What pages and models wrote is text in it, never markup: the templates escape everything, and a content security
policy lets nothing run or load but the one script, the one style sheet and the images that stand in the page itself.
The script filters the episodes; without it all of them are shown.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.report.charts import percent, swatch
from webgym_cli.report.facts import newest_test
from webgym_cli.report.gallery import Card
from webgym_cli.report.phases import phase_sections
from webgym_cli.report.views import NONE, Section, hours, interval, sections

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER = Path(__file__).parent
_FILTERS = ("outcome", "iteration", "split", "band")
"""What the episodes can be filtered by, beside words."""
_LONGEST = 400
"""Characters of a setting's value that are shown."""


def page(facts: dict[str, Any], cards: Sequence[Card]) -> bytes:
    """Return a report's page in UTF-8."""
    values = {name: sorted({card.facts[name] for card in cards}) for name in _FILTERS}
    return _render(
        "report.html",
        facts=facts,
        tiles=_tiles(facts),
        sections=[*sections(facts), *phase_sections(facts)],
        cards=cards,
        filters={name: found for name, found in values.items() if len(found) > 1},
        settings=[(key, _json(of["value"]), _json(of["default"])) for key, of in facts["settings"].items()],
    )


def comparison_page(found: dict[str, Any], shown: Sequence[Section]) -> bytes:
    """Return a comparison's page in UTF-8."""
    differ = [(key, _json(of["first"]), _json(of["second"])) for key, of in found["settings"].items()]
    return _render("compare.html", found=found, sections=shown, settings=differ)


def _tiles(facts: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return what stands at the top: a name, a number, and what it is of."""
    tiles = []
    if newest := newest_test(facts):
        name = f"success, {newest['series']} {newest['iteration']}"
        tiles.append((name, percent(newest["success_rate"]), interval(newest["interval"], percent)))
    tiles.append(("policy version", str(facts["policy_version"]), facts["policy"]))
    tiles.append(("episodes", f"{facts['trajectories']:,}", f"{facts['steps']:,} steps"))
    times, spent = facts["timing"], facts["cost"]["total"]
    idle = NONE if times["idle_share"] is None else f"{percent(times['idle_share'])} idle"
    tiles.append(("time", hours(times["wall_seconds"]), idle))
    if spent["cost"] is not None:
        tiles.append(("cost", f"{spent['cost']:,.2f}", f"{spent['gpu_hours']:,.1f} GPU hours"))
    return tiles


def _render(template: str, **values: Any) -> bytes:
    style, script = _part("report.css"), _part("filter.js")
    text = (
        _environment()
        .get_template(template)
        .render(
            style=style,
            style_digest=_digest(style),
            script=script,
            script_digest=_digest(script),
            swatch=swatch,
            **values,
        )
    )
    return text.encode(errors="replace")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(_FOLDER)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _part(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
