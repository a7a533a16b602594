"""Batch ledger entries made from a plan and its open index."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.prepare.data import Plan, PreparedData
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.records.batch import BatchGroup, BatchSelection, DroppedGroup, TrainingBatch
from webgym_cli.store.checkpoints import policy_name
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir, now

_STALENESS = """
SELECT $parent - coalesce(policy_version, $parent) AS age, sum(coalesce(response_tokens, 1))::BIGINT AS tokens
FROM steps WHERE split = 'train' AND list_contains($iterations, iteration) AND list_contains($ids, trajectory)
GROUP BY age ORDER BY age
"""
# Reasons for which a group is replaced by rolling out another one.
REPLACED = frozenset({MaskReason.NO_VARIANCE, MaskReason.STALE})


def describe_batch(
    data: PreparedData[Plan],
    plan: Plan,
    run: RunDir,
    settings: Settings,
    index: Index,
    as_of: Mapping[str, int],
    selection: BatchSelection | None = None,
) -> TrainingBatch:
    """Return the ledger entry of a planned batch; the plan's index must be open. `selection`: the planned selection."""
    rows = list(data.list_members(plan, run, settings, index, selection))
    groups = tuple(
        BatchGroup(id=name, trajectories=tuple(row["id"] for row in members))
        for name, members in groupby((row for row in rows if row["reason"] is None), key=lambda row: row["group_id"])
    )
    ids = [name for group in groups for name in group.trajectories]
    ages = index.rows(_STALENESS, {"parent": plan.iteration, "iterations": list(plan.read), "ids": ids})
    counted = {row["episode"] for row in rows if row["reason"] not in REPLACED}
    return TrainingBatch(
        parent=plan.iteration,
        policy=policy_name(run, settings),
        mode="sync" if selection is None else "async",
        iterations=tuple(plan.read),
        groups=groups,
        dropped=tuple(_list_dropped(rows)),
        episodes=len(counted) if selection is None else selection.episodes,
        staleness={row["age"]: row["tokens"] for row in ages},
        as_of=dict(as_of),
        plan_digest=plan.digest(),
        config_digest=hashlib.sha256(settings.model_dump_json().encode()).hexdigest(),
        created_at=now(),
    )


def _list_dropped(rows: list[dict[str, Any]]) -> Iterator[DroppedGroup]:
    parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["reason"] is not None:
            parts.setdefault((row["group_id"], row["reason"]), []).append(row)
    for (name, reason), of_group in parts.items():
        yield DroppedGroup(
            id=name,
            reason=reason,
            trajectories=tuple(row["id"] for row in of_group),
            rewards=tuple(row["reward"] for row in of_group),
        )
