"""Tasks on the shop's directory for WebRL's phases on a small machine: find a category, with several phrasings.

In training each phrasing is used with one category only, and in the tests with another one, so a policy that goes by
the phrasing fails there. The remaining combinations are left to a task generator. The quoted words are those that the
scripted generator exchanges and the scripted judge checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webgym_cli.environments.fixture_sites.shop import CATEGORIES

PHRASES = (
    'show "{}"',
    'open the products of "{}"',
    'we look for "{}"',
    'go to "{}"',
    'list all of "{}"',
    'what is there in "{}"',
    'I am after "{}"',
    'take me to "{}"',
    'see what "{}" has',
    'browse "{}"',
)
# Phrasings of a category's tasks, counted from the number of the category.
_TEST, _TRAIN = (1, 6), (0, 5)


def browse_sets() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the tasks of each set by their ids, with the fields of `webarena_tasks.yaml`."""
    return {"browse-train": dict(_make_tasks(_TRAIN)), "browse-test": dict(_make_tasks(_TEST))}


def _make_tasks(later: tuple[int, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, category in enumerate(CATEGORIES):
        for phrase in ((number + place) % len(PHRASES) for place in later):
            yield f"browse-{category.lower()}-{phrase}", _fields(category, PHRASES[phrase])


def _fields(category: str, phrase: str) -> dict[str, Any]:
    address = f"__SHOPPING__/directory/{category.lower()}"
    return {
        "sites": ["shopping"],
        "start_url": "__SHOPPING__/directory",
        "intent": phrase.format(category),
        "eval": {"eval_types": ["url_match"], "reference_url": address, "url_note": "EXACT"},
        "expert": [{"click": f"link {category}"}, {"answer": ""}],
    }
