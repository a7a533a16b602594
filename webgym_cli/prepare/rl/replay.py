"""Replayed experience of a `webrl` batch: actions sampled from the perplexity window, and their lines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.errors import StoreError
from webgym_cli.prepare.rl.drop_reasons import ACTION_REASONS, TRAJECTORY_REASONS, MaskReason
from webgym_cli.prepare.rl.replay_plan import ReplayCandidate
from webgym_cli.prepare.rl.rows import TokenizedAction, tokenize_actions
from webgym_cli.prepare.rl.score import (
    ScoredAction,
    ScoringResult,
    digest_action,
    find_window_violation,
)
from webgym_cli.prepare.sft.sampling import shuffle_by_seed
from webgym_cli.store.buffer import read

Line = dict[str, Any]


def select_replay(scores: ScoringResult, current_rows: int) -> tuple[list[ScoredAction], dict[str, Any]]:
    """Return the replayed actions: sampled by the seed within the window, limited by the cap.

    They are ordered by candidate and step; the dictionary is the experience's part of `dropped.json`.
    """
    plan, dropped = scores.plan, Counter(scores.dropped)
    within: list[ScoredAction] = []
    for one in scores.scored:
        if (side := find_window_violation(one.mean, plan.how)) is None:
            within.append(one)
        else:
            dropped[side.value] += 1
    chosen = shuffle_by_seed(within, plan.seed)[: plan.cap(current_rows)]
    dropped[MaskReason.OVER_RATIO.value] = len(within) - len(chosen)
    whole = Counter(plan.dropped) + scores.dropped_trajectories
    figures = {
        "runs": [str(run) for run in plan.runs],
        "policy": plan.policy,
        "trajectories": plan.trajectories,
        "dropped_trajectories": {reason.value: whole[reason.value] for reason in TRAJECTORY_REASONS},
        "scored_actions": len(scores.scored),
        "dropped_actions": {reason.value: dropped[reason.value] for reason in ACTION_REASONS},
        "at_most": plan.cap(current_rows),
        "replayed": len(chosen),
        "damaged_lines": scores.damaged,
    }
    return sorted(chosen, key=lambda one: (one.candidate, one.step)), figures


def build_replay_lines(
    scores: ScoringResult, chosen: Sequence[ScoredAction], tokens: ModelTokens, *, number: int, group: int
) -> Iterator[tuple[Line, list[Line]]]:
    """Yield the line of each trajectory with its rows. Raises `StoreError` for one that changed since its scoring.

    `number`, `group`: of the first one. Each trajectory is a group of its own.
    """
    for place, (candidate, of_one) in enumerate(groupby(chosen, key=lambda one: one.candidate)):
        of = scores.plan.candidates[candidate]
        numbers = {"number": number + place, "group": group + place}
        line = {
            "id": of.place.id,
            **numbers,
            "reward": of.reward,
            "success": of.success,
            "task": of.task,
            "policy": of.policy,
            "greedy": False,
            "replayed": True,
        }
        # Read and tokenized again, because the tokens of all candidates would not fit in memory.
        actions = tokenize_actions(read(of.run, of.place, without=("logprobs",)), tokens)
        if isinstance(actions, MaskReason):
            raise _changed_error(of)
        rows = [_row(scores, of, actions[one.step], one, last=one.step == len(actions) - 1) for one in of_one]
        yield line, [{"trajectory": of.place.id, **numbers, **row} for row in rows]


def _row(
    scores: ScoringResult, of: ReplayCandidate, action: TokenizedAction, scored: ScoredAction, *, last: bool
) -> Line:
    logprobs = scores.known.get(digest_action(action))
    if logprobs is None:
        raise _changed_error(of)
    return {
        "step": action.step,
        "steps": [action.step],
        "input_ids": [*action.prompt, *action.response],
        "mask": [0] * len(action.prompt) + [1] * len(action.response),
        "logprobs": list(logprobs),
        "images": [],
        "sizes": [],
        "next_prompt": action.after,
        "last": last,
        "replayed": True,
        "perplexity": math.exp(-scored.mean),
        "tokenized": action.tokenized,
        "source": {"run": scores.plan.name_run(of), "trajectory": of.place.id},
    }


def _changed_error(of: ReplayCandidate) -> StoreError:
    return StoreError(
        f"{of.run.root}: {of.place.id} changed while the batch was made", hint="run the same command again"
    )
