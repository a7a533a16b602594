"""`webgym status`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli.options import JsonOpt, RunArg, refuse_both
from webgym_cli.cli.output import Output
from webgym_cli.errors import StoreError

if TYPE_CHECKING:
    from webgym_cli.store.run import RunDir
    from webgym_cli.store.status import RunningCommand

WatchOpt = Annotated[bool, typer.Option("-w", "--watch", help="Refresh each second until the rollout ends.")]
CostOpt = Annotated[bool, typer.Option("--cost", help="Also show tokens and their cost, counted by the index.")]
# Polling interval in seconds.
EVERY = 1.0
# Kind, columns and rows.
_Section = tuple[str, tuple[str, ...], list[tuple[Any, ...]]]
_ROLLOUTS = ("rollout", "loop", "curriculum")
# Titles of the tables below the board.
_TABLES = {
    "stored": "stored trajectories",
    "phase": "phases",
    "evaluation": "evaluations",
    "tokens": "tokens",
    "cost": "cost",
}


def status(run: RunArg, watch: WatchOpt = False, cost: CostOpt = False, json: JsonOpt = False) -> None:
    """Show the activity and the stored data of a run.

    Works in any shell, on any machine that can read the folder, and after the end. `lost`: the rollout's process is
    gone; `silent`: no update for 15 seconds.

    Examples:
      webgym status runs/a --watch
      webgym status runs/a --json | jq .rollout.stages.policy.p95

    Exit codes: 3.

    See also: webgym rollout, webgym resume, webgym inspect-buffer.
    """
    from webgym_cli.store.find_run import find_run

    refuse_both({"--cost": cost, "--watch": watch})
    directory = find_run(run)
    output = Output.for_events(json) if watch else Output(as_json=json)
    if watch and not output.as_json:
        with output.open_redraw() as draw:
            for facts in _read_repeatedly(directory, watch):
                draw(_picture(facts))
    else:
        for facts in _read_repeatedly(directory, watch):
            if cost:
                from webgym_cli.cli.run_index import open_run_index
                from webgym_cli.config.load import load
                from webgym_cli.store.index.spending import read_spending

                with open_run_index(directory, output, kept=False) as index:
                    spent = read_spending(directory, load(run_config=directory.config), index)
                facts["spent"] = spent if spent["episodes"] else None
            _show(output, facts)
            output.flush()
    _note_next_commands(output, facts, str(run), directory)


def _read_repeatedly(run: RunDir, watch: bool) -> Iterator[dict[str, Any]]:
    """Yield what `--json` gives: once, or with `watch` until no rollout runs or is about to. Raises `StoreError`."""
    while True:
        facts, goes_on = _read_status(run)
        yield facts
        if not (watch and goes_on):
            return
        time.sleep(EVERY)


def _read_status(run: RunDir) -> tuple[dict[str, Any], bool]:
    from webgym_cli.records.stored_events import EvaluationEvent, PhaseEvent
    from webgym_cli.report.training_metrics import read_warnings
    from webgym_cli.store.checkpoints import current, version
    from webgym_cli.store.metrics import read_valid_events
    from webgym_cli.store.run import read_base_model
    from webgym_cli.store.status import count_stored, read_lock_holder, read_running_command, read_status

    rollouts, at_work = read_status(run), read_lock_holder(run)
    checkpoint = current(run)
    first, beside = (*rollouts, None, None)[:2]
    command: RunningCommand | None = None
    with suppress(StoreError):  # removed between two reads, or damaged, which `resume` reports
        command = read_running_command(run)
    facts = {
        "event": "status",
        "run": str(run.root),
        "policy_version": version(run),
        "policy": checkpoint.name if checkpoint else read_base_model(run),
        "command": command and {**command.model_dump(mode="json"), "at_work": at_work is not None},
        "holder": at_work,
        "rollout": first and first.describe(),
        "evaluation": beside and beside.describe(),
        "stored": count_stored(run),
        "phases": list(read_valid_events(run, PhaseEvent)),
        "evaluations": list(read_valid_events(run, EvaluationEvent)),
        "warnings": read_warnings(run),
    }
    # A command may have begun before its rollout has written its first snapshot.
    since = datetime.fromisoformat(command.since) if at_work and command and command.command in _ROLLOUTS else None
    coming = since is not None and (first is None or first.updated_at < since)
    return facts, coming or any(status.may_go_on() for status in rollouts)


def _show(output: Output, facts: dict[str, Any]) -> None:
    if output.as_json:
        output.data(facts)
    elif sys.stdout.isatty():
        if facts["rollout"]:
            output.draw(_picture(facts))
        for kind, columns, rows in _sections(facts):
            if rows and kind in _TABLES:
                output.table(_TABLES[kind], columns, rows)
    else:
        # A line of a pipe starts with its kind.
        lines = ((kind, *row) for kind, _, rows in _sections(facts) for row in rows)
        output.table("", (), lines)


def _picture(facts: dict[str, Any]) -> Any:
    from rich.text import Text

    from webgym_cli.cli.live_view import LiveView

    command, rollout = facts["command"], facts["rollout"]
    begins = command and command["at_work"] and (not rollout or rollout["started_at"] < command["since"])
    if begins and command["command"] in _ROLLOUTS and (not rollout or rollout["state"] != "running"):
        return Text(f"webgym {command['command']} has run since {command['since']}: its rollout has not started yet")
    return LiveView(rollout, facts["evaluation"]) if rollout else Text("no rollout yet")


def _sections(facts: dict[str, Any]) -> Iterator[_Section]:
    """Yield the status as sections: kind, columns and rows."""
    from webgym_cli.config.cost import SHARES, list_shares
    from webgym_cli.records.series import name_version

    yield "policy", ("version", "name"), [(facts["policy_version"], facts["policy"])]
    if command := facts["command"]:
        at_work = "at work" if command["at_work"] else "interrupted"
        yield "command", ("command", "state", "since"), [(command["command"], at_work, command["since"])]
    rollouts = [rollout for rollout in (facts["rollout"], facts["evaluation"]) if rollout]
    yield _select("rollout", ("bar", "policy", "state", "done", "total"), rollouts)
    yield _select("process", ("host", "pid", "state", "updated_at"), rollouts)
    if rollouts:
        yield from _rollout_sections(rollouts[0])
    yield _select("stored", ("split", "iteration", "planned", "stored", "judgements"), facts["stored"])
    phase = ("phase", "iteration", "new_tasks", "turned_down", "episodes", "scored", "successes", "version")
    yield _select("phase", phase, facts["phases"])
    events = facts["evaluations"]
    if spent := facts.get("spent"):
        parts = ("policy", "judge", "generator")
        rows = [(part, *spent[f"{part}_tokens"].values(), spent[f"{part}_cost"]) for part in parts]
        yield "tokens", ("of", "prompt", "cached", "completion", "cost"), rows
        yield "cost", ("of", "all", *(f"by {share}" for share in SHARES)), list_shares(spent)
    names = (name_version(event.get("policy", ""), event["iteration"]) for event in events)
    results = ((event["episodes"], event["success_rate"], *event["interval"]) for event in events)
    rows = [(name, *result) for name, result in zip(names, results, strict=True)]
    yield "evaluation", ("policy version", "episodes", "success", "95 % from", "to"), rows


def _rollout_sections(rollout: dict[str, Any]) -> Iterator[_Section]:
    yield "success", (), [(rollout["success_rate"], *rollout["interval"], rollout["known"])]
    yield _select("pace", ("steps_per_second", "elapsed", "eta"), [rollout])
    yield _select("slots", ("running", "slots"), [rollout])
    yield "queue", (), list(rollout["queues"].items())
    yield "count", (), [(name, rollout[name]) for name in ("unjudged", "judged", "skipped", "cut", "given_up")]
    stages = [{"name": name, **stage} for name, stage in rollout["stages"].items()]
    yield _select("stage", ("name", "p50", "p95", "now", "count"), stages)
    yield "failure", (), list(rollout["failures"].items())
    episode = ("id", "step", "max_steps", "stage", "stage_seconds", "task", "url")
    yield _select("episode", episode, rollout["episodes"])


def _select(kind: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> _Section:
    return kind, columns, [tuple(row[name] for name in columns) for row in rows]


def _note_next_commands(output: Output, facts: dict[str, Any], run: str, directory: RunDir) -> None:
    command, rollout = facts["command"], facts["rollout"]
    for warning in facts["warnings"]:
        output.note(warning)
    if command and command["at_work"]:
        output.note(f"webgym {command['command']} has run since {command['since']}")
    elif command:
        output.note(f"webgym {command['command']}, begun {command['since']}, was interrupted")
        output.next_step(f"webgym resume {run}")
    elif judged := directory.orm_of:
        from webgym_cli.store.run import saved_settings

        version, following = "not trained yet", f"webgym train {run}"
        if facts["policy_version"]:
            version = f"version {facts['policy_version']}"
            following = f"webgym score {judged.root} --orm {directory.model(saved_settings(directory))}"
        output.note(f"{run}: the outcome reward model of {judged.root}, {version}")
        output.next_step(following)
    elif not rollout and not facts["stored"]:
        output.note(f"{run}: no rollout yet")
        output.next_step(f"webgym rollout {run}")
