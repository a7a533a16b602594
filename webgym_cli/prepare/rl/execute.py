"""Writes a policy-gradient batch, one trajectory at a time, into a temporary folder that is then renamed."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.errors import WebGymError
from webgym_cli.prepare.rl.drop_reasons import OWN_REASONS, MaskReason
from webgym_cli.prepare.rl.plan import BatchMember, RlPlan
from webgym_cli.prepare.rl.replay import build_replay_lines, select_replay
from webgym_cli.prepare.rl.rows import (
    PromptState,
    build_trained_rows,
    digest_observation,
    oldest_version,
    read_turns,
    render_last_state,
)
from webgym_cli.prepare.rl.score import ScoredAction, ScoringResult
from webgym_cli.records.dataset import DROPPED, ROWS, SUMMARY, TRAJECTORIES, RlData
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.store.buffer import read_or_report
from webgym_cli.store.checkpoints import locate_model, new_name, policy_name, policy_path
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import MissingImageError, ScreenshotStore
from webgym_cli.util.files import WriteLine, open_line_writer, rebuild_folder, write_json
from webgym_cli.util.gc_pause import rare_collections
from webgym_cli.util.optional import when

# Trajectories between two progress events.
PROGRESS_EVERY = 50
# Size of the cache of image paths: neighbouring rows share most images.
REMEMBERED = 1 << 16
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class BatchFiles:
    """Open files of a batch, with the counts of its rows."""

    def __init__(self, to_rows: WriteLine, to_trajectories: WriteLine) -> None:
        self._to_rows, self._to_trajectories = to_rows, to_trajectories
        self.rows = self.tokens = self.trained_tokens = 0

    def add_trajectory(self, line: dict[str, Any]) -> None:
        """Write a line of `trajectories.jsonl`."""
        self._to_trajectories(_encode(line))

    def add_row(self, line: dict[str, Any]) -> None:
        """Write a line of `rows.jsonl`."""
        self._to_rows(_encode(line))
        self.rows += 1
        self.tokens += len(line["input_ids"])
        self.trained_tokens += len(line["logprobs"])


@contextmanager
def open_batch(folder: Path) -> Iterator[BatchFiles]:
    """Yield the files of a new batch. Raises `OSError`."""
    with open_line_writer(folder / ROWS) as to_rows, open_line_writer(folder / TRAJECTORIES) as to_trajectories:
        yield BatchFiles(to_rows, to_trajectories)


def write_summary(folder: Path, files: BatchFiles, **facts: Any) -> RlData:
    """Write `rl.json` of a batch whose files are closed. `facts`: the fields that its rows do not tell."""
    with (folder / ROWS).open("rb") as rows:
        digest = hashlib.file_digest(rows, "sha256").hexdigest()
    counts = {"rows": files.rows, "tokens": files.tokens, "trained_tokens": files.trained_tokens}
    data = RlData(**counts, digest=digest, **facts)
    write_json(folder / SUMMARY, data.facts())
    return data


@rare_collections()
def execute(
    plan: RlPlan, run: RunDir, settings: Settings, sink: EventSink, scores: ScoringResult | None = None
) -> RlData:
    """Write `rl_data/`. The same run and settings give the same rows, byte for byte.

    The plan's index must be open. `scores`: the scored actions of the plan's replay, if it has one. Raises
    `SettingsError` if the server did not return all that is needed, `StoreError` if writing fails, and `WebGymError` if
    no trajectory's tokens can be reconstructed; the previous batch then stays.
    """
    model = policy_path(run, settings)
    tokens = ModelTokens(str(model))
    with rebuild_folder(run.rl_data) as building:
        with open_batch(building) as files:
            batch = _BatchWriter(plan, run, tokens, files, sink)
            batch.write()
            dropped, replayed = _build_dropped(plan, batch), set[int]()
            counts: dict[str, int] = {}
            if scores is not None:
                chosen, dropped["replay"] = batch.replay(scores)
                replayed = {one.candidate for one in chosen}
                counts = {"current_rows": files.rows - len(chosen), "replayed_rows": len(chosen)}
        write_json(building / DROPPED, dropped)
        data = write_summary(
            building,
            files,
            iteration=plan.iteration,
            model_name=new_name(run),
            policy=policy_name(run, settings),
            model=locate_model(model),
            sampling=plan.sampling,
            trained=plan.counts.trained - batch.masked.total() + len(replayed),
            **counts,
            plan_digest=plan.digest(),
        )
    extras = when(plan.reward_extra, {"reward_extra": plan.reward_extra})
    sink(make_event("rl_data", **data.facts(), masked=dropped["masked"], **extras))
    return data


class _BatchWriter:
    def __init__(self, plan: RlPlan, run: RunDir, tokens: ModelTokens, files: BatchFiles, sink: EventSink) -> None:
        self._plan, self._run, self._tokens, self._files, self._sink = plan, run, tokens, files, sink
        self._store = ScreenshotStore(run.screenshots)
        self._located = lru_cache(maxsize=REMEMBERED)(self._locate)
        self.steps = 0
        self.masked = Counter[str]()
        """Trajectories masked because of their content, by reason."""
        self.damaged = list[str]()

    def write(self) -> None:
        """Write all lines. Raises `WebGymError` without any row."""
        total = self._plan.counts.trajectories
        for done, member in enumerate(self._plan.members(), 1):
            line = _line(member, *self._write_trained(member))
            self._files.add_trajectory(line if self._plan.replay is None else line | {"replayed": False})
            if done % PROGRESS_EVERY == 0 or done == total:
                self._sink({"event": "rl_data_progress", "bar": "prepare", "done": done, "total": total})
        if not self._files.rows:
            reasons = ", ".join(f"{count} x {reason}" for reason, count in sorted(self.masked.items()))
            raise WebGymError(
                f"{self._run.root}: the tokens of no trajectory can be told ({reasons})",
                hint=f"webgym inspect-buffer {self._run.root} --verify",
            )

    def _write_trained(self, member: BatchMember) -> tuple[float | None, MaskReason | None]:
        """Write the rows of a trajectory that is to be trained; return its reward, or why it is masked."""
        if member.masked is not None or member.greedy:
            return member.reward, member.masked
        rows = self._rows_of(member)
        if isinstance(rows, MaskReason):
            self.masked[rows.value] += 1
            return None, rows
        for line in rows:
            self.steps += len(line["steps"])
            self._files.add_row(line)
        return member.reward, None

    def replay(self, scores: ScoringResult) -> tuple[list[ScoredAction], dict[str, Any]]:
        """Append the replayed experience and return the result of `select_replay`."""
        (chosen, figures), counts = select_replay(scores, self._files.rows), self._plan.counts
        # numbered after those of the iteration
        numbers = {"number": counts.trajectories, "group": counts.groups}
        for trajectory, lines in build_replay_lines(scores, chosen, self._tokens, **numbers):
            self._files.add_trajectory(trajectory)
            for line in lines:
                self._files.add_row(line)
        return chosen, figures

    def _rows_of(self, member: BatchMember) -> list[dict[str, Any]] | MaskReason:
        """Return the rows with the paths of their images, or why there are none."""
        trajectory = read_or_report(self._run, member.place, self.damaged, self._sink)
        if trajectory is None:
            return MaskReason.DAMAGED
        turns = read_turns(trajectory, self._tokens)
        if isinstance(turns, MaskReason):
            return turns
        rows = build_trained_rows(turns, self._plan.how)
        states: list[PromptState] = []  # state after each step, for `webrl`
        if self._plan.replay is not None:
            states += [PromptState(turn.prompt, turn.images, turn.sizes) for turn in turns[1:]]
            states.append(render_last_state(trajectory, self._tokens))
        limit = self._plan.how.max_row_tokens
        sequences = (*(row.input_ids for row in rows), *(state.ids for state in states))
        if limit is not None and any(len(ids) > limit for ids in sequences):
            return MaskReason.TOO_LONG
        key: dict[str, Any] = {"trajectory": member.place.id, "number": member.number, "group": member.group}
        try:
            lines = [key | row.to_line(list(map(self._located, row.images))) for row in rows]
            after = [list(map(self._located, state.images)) for state in states]
        except MissingImageError:
            return MaskReason.IMAGE_MISSING
        for line in lines:
            line["version"] = oldest_version(trajectory, line["steps"])
            if self._plan.anchors:
                line["anchor"] = digest_observation(trajectory.steps[line["step"]].observation)
        # Without merging, each step is one row, so rows and states have the same numbers.
        for number, state in enumerate(states):
            lines[number] |= {"next_prompt": state.ids, "last": number == len(states) - 1, "replayed": False}
            if state.images:
                lines[number] |= {"next_images": after[number], "next_sizes": [list(size) for size in state.sizes]}
        return lines

    def _locate(self, sha256: str) -> str:
        """Return the path of a verified image relative to the batch. Raises `StoreError`."""
        self._store.get(sha256)  # verify it now: a trainer would fail hours later
        return self._store.locate_beside(sha256)


def _line(member: BatchMember, reward: float | None, masked: MaskReason | None) -> dict[str, Any]:
    return {
        "id": member.place.id,
        "number": member.number,
        "group": member.group,
        "reward": reward,
        "success": None if reward is None else member.success,
        "task": member.task,
        "policy": member.policy,
        "greedy": member.greedy,
        "masked": masked,
    }


def _build_dropped(plan: RlPlan, batch: _BatchWriter) -> dict[str, Any]:
    """Return the content of `dropped.json`: the composition of the batch, and all reasons with counts."""
    counts, masked = plan.counts, Counter(plan.counts.masked) + batch.masked
    return {
        "trajectories": counts.trajectories,
        "trained": counts.trained - batch.masked.total(),
        "greedy": counts.greedy,
        "masked": {reason.value: masked[reason.value] for reason in OWN_REASONS},
        "failures": counts.failures,
        "groups": counts.groups,
        "group_by": plan.group_by,
        "policies": counts.policies,
        "steps": counts.steps,
        "trained_steps": batch.steps,
        "damaged_lines": [*plan.damaged, *batch.damaged],
    }
