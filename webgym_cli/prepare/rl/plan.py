"""Plan of a policy-gradient batch from the index: its trajectories in groups, and the masked ones with reasons."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from webgym_cli.config.model import Settings
from webgym_cli.config.rl_data import GroupBy, RlDataSettings
from webgym_cli.errors import MissingStageError, SettingsError, StoreError, WebGymError
from webgym_cli.prepare.groups import load_planned_groups, resolve_group_by
from webgym_cli.prepare.rl.attempts import attempts_sql, mask_groups, shape_rewards
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.prepare.rl.replay_plan import ReplayPlan, plan_replay
from webgym_cli.prepare.rl.rows import missing_tokens_error
from webgym_cli.prepare.rl.sampling import require_one_sampling
from webgym_cli.records.batch import BatchSelection
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.series import IMPORTED_ID
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import LineRef
from webgym_cli.store.checkpoints import version
from webgym_cli.store.index.query import LINE_REF, Index
from webgym_cli.store.run import RunDir
from webgym_cli.util.optional import known_or, when
from webgym_cli.util.text import and_more

_BATCH = """
CREATE OR REPLACE TABLE rl_batch AS
WITH {attempts}
SELECT row_number() OVER (ORDER BY team, turn, id) - 1 AS number, dense_rank() OVER (ORDER BY team) - 1 AS team, turn,
    group_id, id, episode, iteration, task, policy, reward, success, failure, steps, sampling,
    coalesce(baseline AND sampling.temperature = 0, false) AS greedy,
    file, start, size, verdict_file, verdict_start, verdict_size, reason
FROM last_attempts LEFT JOIN rl_planned USING (episode)
"""
_SELECTED = """
CREATE OR REPLACE TABLE rl_selected AS
SELECT unnest(?::VARCHAR[]) AS id, list_contains(?::VARCHAR[], id) AS stale
"""
_MASK_STALE = f"""
UPDATE rl_batch SET reason = '{MaskReason.STALE}'
WHERE reason IS NULL AND id IN (SELECT id FROM rl_selected WHERE stale)
"""
_MEMBERS = f"""
SELECT {LINE_REF} AS place, number, team AS "group", task, policy, CASE WHEN reason IS NULL THEN reward END AS reward,
    success, greedy, reason AS masked
FROM rl_batch ORDER BY number
"""
# Steps without token ids: what a server does not return is missing in the whole rollout.
_MISSING_TOKENS = """
SELECT count(DISTINCT id) AS count, min(id) AS first, arg_min(policy, id) AS policy
FROM rl_batch JOIN steps ON steps.trajectory = id AND steps.iteration = rl_batch.iteration AND steps.split = 'train'
WHERE reason IS NULL AND NOT greedy AND response_tokens IS NULL
"""
# Imported before the iteration's rollout, the others are in no plan: its batch was refused.
_ROLLED_OUT = f"NOT regexp_matches(id, '{IMPORTED_ID}')"
_STEPS = "SELECT coalesce(sum(steps), 0)::BIGINT AS steps FROM rl_batch WHERE reason IS NULL AND NOT greedy"
# Fields of `BatchCounts`.
_COUNTS = """
SELECT count(*) AS trajectories, coalesce(sum(steps), 0)::BIGINT AS steps, count(DISTINCT team) AS groups,
    count(*) FILTER (reason IS NULL AND NOT greedy) AS trained, count(*) FILTER (reason IS NULL AND greedy) AS greedy,
    histogram(reason) AS masked, histogram(failure) FILTER (reason = 'failure') AS failures,
    histogram(policy) AS policies, (
        SELECT count(*) FROM (
            SELECT team FROM rl_batch WHERE reason IS NULL AND NOT greedy GROUP BY team HAVING count(*) = 1)
    ) AS groups_of_one
FROM rl_batch
"""


@dataclass(frozen=True, slots=True)
class BatchMember:
    """One trajectory of the batch."""

    place: LineRef
    number: int
    """Number from 0, in the order of the plans, group by group."""
    group: int
    """Number from 0."""
    task: str
    """The task's id."""
    policy: str
    reward: float | None
    """None exactly if it is masked."""
    success: bool | None
    """Whether the reward counts as a success; None without a reward."""
    greedy: bool
    masked: MaskReason | None
    """Reason for masking, as far as the index shows it."""


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """Composition of the batch. One attempt of each episode counts: see `attempts`."""

    trajectories: int
    steps: int
    groups: int
    groups_of_one: int
    """Groups with a single trained trajectory, which is compared with nothing."""
    trained: int
    """Trajectories that get rows unless their tokens can't be reconstructed."""
    greedy: int
    """Greedy baselines of groups (`agent.greedy_chain`)."""
    masked: dict[str, int]
    """By reason."""
    failures: dict[str, int]
    """Infrastructure failures, by kind."""
    policies: dict[str, int]
    """Number of trajectories by policy."""


@dataclass(frozen=True, slots=True)
class RlPlan:
    """Plan of a policy-gradient batch."""

    iteration: int
    read: tuple[int, ...]
    how: RlDataSettings
    anchors: bool
    """Whether each row is one step with the digest of its observation."""
    group_by: GroupBy
    sampling: Sampling
    counts: BatchCounts
    damaged: tuple[str, ...]
    """Unreadable lines with file, byte offset and reason. Their episodes are pending again."""
    replay: ReplayPlan | None
    """Earlier experience that `webrl` may replay; None for other algorithms."""
    reward_extra: dict[str, float]
    """Means of the other numbers that the shaping function returned."""
    index: Index = field(repr=False, compare=False)
    """Contains the batch while it is open. An index contains one batch, the newest."""

    def members(self) -> Iterator[BatchMember]:
        """Yield the trajectories of the batch by number, fetched in small pages."""
        for row in self.index.rows(_MEMBERS):
            place, masked = LineRef(**row.pop("place")), row.pop("masked")
            yield BatchMember(place=place, masked=masked and MaskReason(masked), **row)

    def digest(self, *, former: bool = False) -> str:
        """Return the SHA-256 of the batch's content and settings; equal digests mean equal batches.

        `former`: as an older version computed it.
        """
        # A shaping function shows in the rewards.
        how: list[object] = [
            self.iteration,
            self.how.model_dump(exclude={"shaping"}),
            self.group_by,
            self.sampling.model_dump(),
        ]
        how += when(self.anchors, ["anchors"])
        how += [] if self.replay is None else self.replay.digest_parts(former=former)
        digest = hashlib.sha256(json.dumps(how, sort_keys=True).encode())
        for member in self.members():
            facts = (member.place.id, member.group, member.reward, member.success, member.greedy, member.masked)
            digest.update(repr((*facts, member.policy)).encode())
        return digest.hexdigest()

    def to_json(self) -> dict[str, object]:
        """Return the output of `--dry-run`."""
        return {
            "event": "plan",
            "stage": "rl_data",
            "iteration": self.iteration,
            "iterations_read": list(self.read),
            "group_by": self.group_by,
            "sampling": self.sampling.model_dump(),
            **when(self.how.shaping, {"shaping": self.how.shaping, "reward_extra": self.reward_extra}),
            **asdict(self.counts),
            "damaged_lines": list(self.damaged),
            **({} if self.replay is None else {"replay": self.replay.to_json()}),
        }


def plan_batch(
    run: RunDir,
    settings: Settings,
    index: Index,
    *,
    transitions: bool = False,
    anchors: bool = False,
    group_relative: bool = False,
    selection: BatchSelection | None = None,
) -> RlPlan:
    """Return the plan for the run's current iteration, or for a selection of stored trajectories.

    `transitions`: one row per step, with replayed steps; `anchors`: one row per step, with the digest of its
    observation. `group_relative`: groups with equal rewards have no gradient and are dropped unless the settings
    disable that.

    Raises `MissingStageError` without any trajectory, `SettingsError` if the sampled tokens can't be trained on,
    `StoreError` for an episode that is in no plan, and `WebGymError` if nothing is left to train on.
    """
    iteration, how = version(run), settings.rl.data
    if transitions:
        _refuse_for_webrl(how)
    read = _find_iterations(run, settings, iteration) if selection is None else selection.iterations
    by = resolve_group_by(settings)
    load_planned_groups(index, run, read, by, settings.agent.group_size)
    of_iterations = f"iteration IN ({', '.join(map(str, read))})"
    where = f"{of_iterations} AND {_ROLLED_OUT}"
    if selection is not None:
        index.one(_SELECTED, [sorted(selection.trajectories), sorted(selection.stale)])
        where += " AND id IN (SELECT id FROM rl_selected)"
    extras = shape_rewards(run, settings, index, where)
    index.one(_BATCH.format(attempts=attempts_sql(where, shaped=True)))
    if selection is not None:
        index.one(_MASK_STALE)
    if known_or(how.filter_groups.enable, group_relative):
        mask_groups(index)
    # Errors that no setting can fix come first.
    _refuse_unplanned(index, run)
    counts = _count(index)
    _refuse_empty(counts, run)
    if (missing := index.one(_MISSING_TOKENS))["count"]:
        raise missing_tokens_error(f"{missing['first']}{and_more(missing['count'])}", "token ids", missing["policy"])
    sampling = require_one_sampling(run, index)
    damaged = tuple(index.damaged_lines(f"split = 'train' AND {of_iterations}"))
    replay = None
    if transitions or anchors:  # critics and anchors refer to single states, so each action needs a row of its own
        how = how.model_copy(update={"merge_turns": False})
    if transitions:
        replay = plan_replay(run, settings, index, read, index.one(_STEPS)["steps"], iteration)
    return RlPlan(iteration, tuple(read), how, anchors, by, sampling, counts, damaged, replay, extras, index)


def _refuse_for_webrl(how: RlDataSettings) -> None:
    if how.train_on_last_turn:
        raise SettingsError(
            "rl.data.train_on_last_turn: WebRL's critic values every step, so all are trained",
            hint="repeat the command with -s rl.data.train_on_last_turn=false",
        )
    if how.shaping:  # replayed episodes would keep their stored rewards
        raise SettingsError(
            f"rl.data.shaping={how.shaping}: WebRL trains on the rewards as they are stored",
            hint="repeat the command with -s rl.data.shaping=",
        )


def _find_iterations(run: RunDir, settings: Settings, iteration: int) -> list[int]:
    """Return the last iterations of the policy's own episodes. Raises `MissingStageError` without any trajectory."""
    # An expert's episodes have no log-probabilities.
    demonstrations = min(settings.loop.demonstration_iterations, iteration)
    first = max(iteration - settings.rl.data.last_n_iterations + 1, demonstrations)
    stored = [number for number in run.list_iterations(Split.TRAIN) if first <= number <= iteration]
    if not stored:
        raise MissingStageError(
            f"{run.root}: no training trajectories of iteration {iteration}", hint=f"webgym rollout {run.root}"
        )
    return stored


def _count(index: Index) -> BatchCounts:
    row = index.one(_COUNTS)
    by_name = {name: dict(sorted((row[name] or {}).items())) for name in ("masked", "failures", "policies")}
    return BatchCounts(**row | by_name)


def _refuse_unplanned(index: Index, run: RunDir) -> None:
    for row in index.rows("SELECT id, episode, iteration FROM rl_batch WHERE turn IS NULL ORDER BY id LIMIT 1"):
        path = run.plan(Split.TRAIN, row["iteration"])
        raise StoreError(
            f"{path}: no episode {row['episode']}, which {row['id']} is of: its group can't be told",
            hint="restore the plan that its rollout wrote",
        )


def _refuse_empty(counts: BatchCounts, run: RunDir) -> None:
    if not counts.trained:
        dropped = {**counts.masked, "greedy": counts.greedy}
        reasons = ", ".join(f"{count} x {reason}" for reason, count in dropped.items() if count)
        reasons = reasons or "there is none but imported ones, for imitation"
        rewarded = f"webgym judge {run.root}, or webgym score {run.root} --orm MODEL"
        raise WebGymError(
            f"{run.root}: no trajectory has a reward to learn from ({reasons})",
            hint=rewarded if MaskReason.REWARD_UNKNOWN in counts.masked else f"webgym inspect-buffer {run.root}",
        )
