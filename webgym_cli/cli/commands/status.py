"""`webgym status`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli.options import JsonOpt, RunArg
from webgym_cli.cli.output import Output
from webgym_cli.errors import StoreError

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings
    from webgym_cli.store.run import RunDir
    from webgym_cli.store.state import RunningCommand
    from webgym_cli.store.status import RankStatus, StoredCounts

WatchOpt = Annotated[bool, typer.Option("-w", "--watch", help="Refresh each second until the rollout ends.")]
# Polling interval in seconds.
EVERY = 1.0
_ROLLOUTS = ("rollout", "loop", "curriculum")
# Displayed fields of a finished curriculum phase.
_PHASE = ("phase", "iteration", "new_tasks", "turned_down", "episodes", "scored", "successes", "version")


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Status of a run at one point in time."""

    facts: dict[str, Any]
    """What `--json` gives."""
    goes_on: bool
    """Whether a rollout runs, or is about to."""


def status(run: RunArg, watch: WatchOpt = False, json: JsonOpt = False) -> None:
    """Show the activity and the stored data of a run.

    Shows the newest rollout episode by episode, and the concurrent evaluation of an asynchronous loop. Both are read
    from files that they update each second: the command works in any shell, on any machine that can read the folder,
    and after the end. It takes no lock. `lost`: the rollout's process is gone; `silent`: no update for 15 seconds.

    Examples:
      webgym status runs/a --watch
      webgym status runs/a --json | jq .rollout.stages.policy.p95

    Exit codes: 3.

    See also: webgym rollout, webgym resume, webgym inspect-buffer.
    """
    from webgym_cli.store.run import open_run
    from webgym_cli.store.status import StoredCounts

    directory, settings = open_run(run)
    counts = StoredCounts(directory)
    output = Output.for_events(json) if watch else Output(as_json=json)
    if not watch:
        current = read_run_status(directory, settings, counts)
        _show(output, current.facts)
    elif output.as_json:
        for current in _watch_status(directory, settings, counts):
            output.data(current.facts)
            sys.stdout.flush()
    else:
        with output.open_redraw() as draw:
            for current in _watch_status(directory, settings, counts):
                draw(_picture(current.facts))
    _note_next_commands(output, current.facts, str(run), directory, settings)


def _watch_status(run: RunDir, settings: Settings, counts: StoredCounts) -> Iterator[RunStatus]:
    while True:
        current = read_run_status(run, settings, counts)
        yield current
        if not current.goes_on:
            return
        time.sleep(EVERY)


def read_run_status(run: RunDir, settings: Settings, counts: StoredCounts) -> RunStatus:
    """Read the current status of a run. Raises `StoreError`."""
    from webgym_cli.records.stored_events import EvaluationEvent, PhaseEvent
    from webgym_cli.report.training_metrics import read_warnings
    from webgym_cli.store.checkpoints import policy_name, version
    from webgym_cli.store.metrics import read_valid_events
    from webgym_cli.store.state import read_running_command
    from webgym_cli.store.status import read_lock_holder, read_status

    rollouts, at_work = read_status(run), read_lock_holder(run)
    first, beside = (*rollouts, None, None)[:2]
    command: RunningCommand | None = None
    with suppress(StoreError):  # removed between two reads, or damaged, which `resume` reports
        command = read_running_command(run)
    facts = {
        "event": "status",
        "run": str(run.root),
        "policy_version": version(run),
        "policy": policy_name(run, settings),
        "command": None if command is None else {**command.model_dump(mode="json"), "at_work": at_work is not None},
        "holder": at_work,
        "rollout": first and _rollout(run, first),
        "evaluation": beside and _rollout(run, beside),
        "ranks": [_rank(first)] if first else [],
        "stored": counts.rows(),
        "phases": list(read_valid_events(run, PhaseEvent)),
        "evaluations": list(read_valid_events(run, EvaluationEvent)),
        "warnings": read_warnings(run),
    }
    # A command may have begun before its rollout has written its first snapshot.
    since = datetime.fromisoformat(command.since) if at_work and command and command.command in _ROLLOUTS else None
    coming = since is not None and (first is None or first.updated_at < since)
    return RunStatus(facts, coming or any(status.may_go_on() for status in rollouts))


def _rollout(run: RunDir, status: RankStatus) -> dict[str, Any]:
    """Return a rollout's snapshot with its state. Raises `StoreError` if another version wrote it."""
    from webgym_cli.records.base import moment_of
    from webgym_cli.records.task import Split
    from webgym_cli.rollout.monitoring.snapshot import complete, end_snapshot, recount, without_buckets
    from webgym_cli.store.buffer import list_iterations, scan
    from webgym_cli.store.status import RolloutState

    snapshot = status.snapshot
    try:
        # The last snapshot is missing. An asynchronous loop's covers several iterations.
        if status.seen() is RolloutState.LOST:
            split, began = Split(snapshot["split"]), moment_of(snapshot["started_at"])
            recent = list_iterations(run, split, began.timestamp())
            snapshot = recount(snapshot, chain.from_iterable(scan(run, split, number) for number in recent))
        shown = without_buckets((complete if status.may_go_on() else end_snapshot)(snapshot))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"the status of rank {status.rank} was written by another version: {error!r}",
            hint="the next rollout replaces it",
        ) from None
    return {"state": status.seen().value, **shown}


def _rank(rank: RankStatus) -> dict[str, Any]:
    kept = rank.model_dump(mode="json", include={"rank", "host", "pid", "started_at", "updated_at"})
    return {**kept, "state": rank.seen().value}


def _show(output: Output, facts: dict[str, Any]) -> None:
    if output.as_json:
        output.data(facts)
    elif not sys.stdout.isatty():
        output.table("", (), _lines(facts))
    else:
        if facts["rollout"]:
            output.draw(_picture(facts))
        for title, columns, rows in _tables(facts):
            if rows:
                output.table(title, columns, rows)


def _picture(facts: dict[str, Any]) -> Any:
    from rich.text import Text

    from webgym_cli.cli.live_view import LiveView

    command, rollout = facts["command"], facts["rollout"]
    begins = command and command["at_work"] and (not rollout or rollout["started_at"] < command["since"])
    if begins and command["command"] in _ROLLOUTS and (not rollout or rollout["state"] != "running"):
        return Text(f"webgym {command['command']} has run since {command['since']}: its rollout has not started yet")
    return LiveView(rollout, rollout["state"], beside=facts["evaluation"]) if rollout else Text("no rollout yet")


def _tables(facts: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...], list[tuple[Any, ...]]]]:
    """Yield the tables below the board: title, columns and rows."""
    from webgym_cli.records.series import name_version

    if any(rank["state"] in ("silent", "lost") for rank in facts["ranks"]):
        columns = ("rank", "host", "pid", "state", "updated_at")
        yield "ranks", columns, [tuple(rank[name] for name in columns) for rank in facts["ranks"]]
    columns = ("split", "iteration", "planned", "stored", "judgements")
    yield "stored trajectories", columns, [tuple(row[name] for name in columns) for row in facts["stored"]]
    yield "phases", _PHASE, [tuple(event[name] for name in _PHASE) for event in facts["phases"]]
    yield (
        "evaluations",
        ("policy version", "episodes", "success", "95 %"),
        [
            (
                name_version(event.get("policy", ""), event["iteration"]),
                event["episodes"],
                _rate(event["success_rate"]),
                "-".join(map(_rate, event["interval"])),
            )
            for event in facts["evaluations"]
        ],
    )


def _lines(facts: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the same data for a pipe: lines whose first cell is their kind."""
    from webgym_cli.records.series import name_version

    command, rollout = facts["command"], facts["rollout"]
    yield "policy", facts["policy_version"], facts["policy"]
    if command:
        yield "command", command["command"], "at work" if command["at_work"] else "interrupted", command["since"]
    if rollout:
        names = ("bar", "policy", "state", "done", "total")
        yield from (("rollout", *(one[name] for name in names)) for one in (rollout, facts["evaluation"]) if one)
        yield "success", rollout["success_rate"], *rollout["interval"], rollout["known"]
        yield "pace", rollout["steps_per_second"], rollout["elapsed"], rollout["eta"]
        yield "slots", rollout["running"], rollout["slots"]
        yield from (("queue", name, depth) for name, depth in rollout["queues"].items())
        yield from (("isolation", site, kind) for site, kind in rollout.get("isolation", {}).items())
        counters = ("outstanding", "requests", "failures", "open")
        yield from (("server", url, *(server[name] for name in counters)) for url, server in rollout["servers"].items())
        yield from (("count", name, rollout[name]) for name in ("unjudged", "judged", "skipped", "cut", "given_up"))
        for name, stage in rollout["stages"].items():
            yield "stage", name, stage["p50"], stage["p95"], stage["now"], stage["count"]
        yield from (("failure", kind, count) for kind, count in rollout["failures"].items())
        yield from (("site", site, sum(kinds.values())) for site, kinds in rollout["failures_by_site"].items())
        columns = ("id", "step", "max_steps", "stage", "stage_seconds", "task", "url")
        yield from (("episode", *(episode[name] for name in columns)) for episode in rollout["episodes"])
    for rank in facts["ranks"]:
        yield "rank", rank["rank"], rank["host"], rank["pid"], rank["state"], rank["updated_at"]
    for row in facts["stored"]:
        yield "stored", row["split"], row["iteration"], row["planned"], row["stored"], row["judgements"]
    for event in facts["phases"]:
        yield "phase", *(event[name] for name in _PHASE)
    for event in facts["evaluations"]:
        name = name_version(event.get("policy", ""), event["iteration"])
        yield "evaluation", name, event["episodes"], event["success_rate"], *event["interval"]


def _note_next_commands(output: Output, facts: dict[str, Any], run: str, directory: RunDir, settings: Settings) -> None:
    command, rollout = facts["command"], facts["rollout"]
    for warning in facts["warnings"]:
        output.note(warning)
    if command and command["at_work"]:
        output.note(f"webgym {command['command']} has run since {command['since']}")
    elif command:
        output.note(f"webgym {command['command']}, begun {command['since']}, was interrupted")
        output.next_step(f"webgym resume {run}")
    elif judged := directory.orm_of:
        version = f"version {facts['policy_version']}" if facts["policy_version"] else "not trained yet"
        output.note(f"{run}: the outcome reward model of {judged.root}, {version}")
        scoring = f"webgym score {judged.root} --orm {directory.model(settings)}"
        output.next_step(scoring if facts["policy_version"] else f"webgym train {run}")
    elif not rollout and not facts["stored"]:
        output.note(f"{run}: no rollout yet")
        output.next_step(f"webgym rollout {run}")


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.3f}"
