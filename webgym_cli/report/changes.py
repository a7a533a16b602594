"""Paired comparison of policy versions on shared test episodes: gains and losses by task family, with examples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypedDict

from webgym_cli.report.charts import NONE, format_percent
from webgym_cli.report.figures import Figure, ReportSection, Table
from webgym_cli.store.index.paired import (
    Change,
    Pair,
    PairedCase,
    compute_p_value,
    count_changes,
    count_changes_by,
    find_change,
    pair_cases,
)
from webgym_cli.store.index.query import Index

# Maximum rows of a table; of more families, those with the largest changes are shown.
FAMILIES = 30
# Examples of gained episodes, and as many of lost ones.
EXAMPLES = 4

_ITERATIONS = """
SELECT DISTINCT iteration FROM trajectories
WHERE series = 'test' AND success IS NOT NULL ORDER BY iteration
"""
_NUMBER = re.compile(r"[-_.]?\d+$")


class FamilyChange(TypedDict):
    """Gains and losses in one task family."""

    family: str
    pairs: int
    before: int
    """Pairs that the first version solved."""
    after: int
    gained: int
    lost: int


class ChangeExample(TypedDict):
    """One test episode run by two policy versions."""

    family: str
    change: str
    """`gained` or `lost`."""
    before: str
    """The trajectory's id."""
    after: str


class VersionChange(TypedDict):
    """Comparison of two evaluated policy versions on their shared test episodes."""

    before: int
    """The iteration of the evaluation, which is the policy's version."""
    after: int
    pairs: int
    gained: int
    lost: int
    p_value: float
    families: list[FamilyChange]
    """Those that changed most first."""
    examples: list[ChangeExample]
    """The trajectories to look at."""


def read_changes(index: Index) -> list[VersionChange]:
    """Compare the newest version with the previous one and with the first. Raises `StoreError`."""
    versions = [row["iteration"] for row in index.rows(_ITERATIONS)]
    earlier = dict.fromkeys([*versions[-2:-1], *versions[:-1][:1]])
    comparisons = [_compare(index, before, versions[-1]) for before in earlier]
    return [change for change in comparisons if change["pairs"]]


def _compare(index: Index, before: int, after: int) -> VersionChange:
    pairs = pair_cases((index, "test", before), (index, "test", after))
    counts = count_changes(pairs)
    name = name_family([first for first, _ in pairs])
    return {
        "before": before,
        "after": after,
        "pairs": len(pairs),
        "gained": counts[Change.GAINED],
        "lost": counts[Change.LOST],
        "p_value": compute_p_value(counts),
        "families": list(_count_families(pairs, name)),
        "examples": [*_examples(pairs, name, Change.GAINED), *_examples(pairs, name, Change.LOST)],
    }


def name_family(cases: Sequence[PairedCase]) -> Callable[[PairedCase], str]:
    """Return the function that maps a case to its family: task, task without trailing number, or site.

    The first of these that yields few enough families for a table is used.
    """
    names: tuple[Callable[[PairedCase], str], ...] = (
        lambda case: case.task,
        lambda case: _NUMBER.sub("", case.task) or case.task,
        lambda case: case.site,
    )
    return next((name for name in names if len({name(case) for case in cases}) <= FAMILIES), names[-1])


def _count_families(pairs: Sequence[Pair], name: Callable[[PairedCase], str]) -> Iterator[FamilyChange]:
    for family, counts in islice(count_changes_by(pairs, name).items(), FAMILIES):
        gained, lost, kept, failed = (counts[change] for change in Change)
        yield {
            "family": family,
            "pairs": gained + lost + kept + failed,
            "before": kept + lost,
            "after": kept + gained,
            "gained": gained,
            "lost": lost,
        }


def _examples(pairs: Sequence[Pair], name: Callable[[PairedCase], str], change: Change) -> Iterator[ChangeExample]:
    """Yield examples of a change, spread over as many families as possible."""
    changed = [pair for pair in pairs if find_change(pair) is change]
    by_family: dict[str, Pair] = {name(pair[0]): pair for pair in reversed(changed)}
    rest = [pair for pair in changed if by_family[name(pair[0])] is not pair]
    for before, after in [*by_family.values(), *rest][:EXAMPLES]:
        yield {"family": name(before), "change": change.value, "before": before.id, "after": after.id}


def build_change_section(changes: Sequence[VersionChange]) -> ReportSection:
    """Return the section with one table of families for each comparison."""
    figures = [_table(change) for change in changes]
    figures += [_list_examples(change) for change in changes if change["examples"]]
    note = (
        "The same test episodes (task and seed) by two policy versions: gained are those that only the later one "
        "solved, lost those that only the earlier one did."
    )
    return ReportSection("changes", "Gained and lost", tuple(figures), note)


def _table(change: VersionChange) -> Figure:
    rows = tuple(
        (
            of["family"],
            str(of["pairs"]),
            format_percent(of["before"] / of["pairs"]),
            format_percent(of["after"] / of["pairs"]),
            str(of["gained"] or NONE),
            str(of["lost"] or NONE),
        )
        for of in change["families"]
    )
    columns = ("", "pairs", f"version {change['before']}", f"version {change['after']}", "gained", "lost")
    note = (
        f"{change['gained']} gained, {change['lost']} lost of {change['pairs']}; McNemar's p = {change['p_value']:.3g}."
    )
    title = f"Version {change['before']} to {change['after']}"
    return Figure(title, Table(columns, rows), note)


def _list_examples(change: VersionChange) -> Figure:
    rows = tuple((of["change"], of["family"], of["before"], of["after"]) for of in change["examples"])
    title = f"Examples, version {change['before']} to {change['after']}"
    columns = ("", "family", f"version {change['before']}", f"version {change['after']}")
    return Figure(title, Table(columns, rows), "webgym view shows two episodes side by side.")
