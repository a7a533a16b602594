"""The verdicts of webarena-verified on exported episodes, read from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from webgym_cli.config.model import Settings
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.base import Record
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.trajectory import Score, Trajectory
from webgym_cli.rewards.check_scorer import CheckScorer
from webgym_cli.rewards.selection import PendingTrajectory, ScoreResult, ScoringSelection, ScoringSkip
from webgym_cli.store.outputs import EXPORTED_EPISODES
from webgym_cli.util.files import read_json
from webgym_cli.util.json_values import digest_json

_EPISODES = TypeAdapter(dict[str, dict[Literal["trajectory", "started_at"], str]])


class _Evaluator(Record):
    model_config = ConfigDict(extra="ignore")
    error_msg: str | None = None


class _Result(_Evaluator):
    """What webarena-verified writes about one episode: `eval_result.json`."""

    status: Literal["success", "failure", "error"]
    score: Literal[0, 1]
    evaluators_results: tuple[_Evaluator, ...] = ()
    version: str = Field(alias="webarena_verified_version")
    evaluators: str = Field(alias="webarena_verified_evaluator_checksum")
    tasks: str = Field(alias="webarena_verified_data_checksum")


class OfficialScorer(CheckScorer):
    """Stores the verdicts in a scored export as those of a check."""

    skip_reasons = (ScoringSkip.NOT_EXPORTED, ScoringSkip.SAME_CHECK, ScoringSkip.REPLACED)

    def __init__(self, settings: Settings, folder: Path) -> None:
        """Raise `UsageError` for a folder that no export has made."""
        super().__init__(settings)
        try:
            known = _EPISODES.validate_python(read_json(folder / EXPORTED_EPISODES))
            self._folders = {(one["trajectory"], one["started_at"]): folder / name for name, one in known.items()}
        except (StoreError, ValidationError, KeyError):
            hint = "webgym export-sharegpt RUN --format webarena-verified -o DIR"
            raise UsageError(f"{folder}: no export for an official scorer", hint=hint) from None

    def find_skip_reason(
        self, trajectory: Trajectory, last: Judgement | None, selection: ScoringSelection
    ) -> ScoringSkip | None:
        """Return why a trajectory gets no verdict, or None."""
        if (trajectory.id, trajectory.started_at) not in self._folders:
            return ScoringSkip.NOT_EXPORTED
        score = self._read(trajectory)
        known = last and (last.settings_digest, last.reward)
        is_same = isinstance(score, Score) and known == (score.digest, score.value)
        return ScoringSkip.SAME_CHECK if is_same and selection is not ScoringSelection.ALL else None

    async def score(self, pending: PendingTrajectory, trajectory: Trajectory) -> ScoreResult:
        """Return the verdict of a trajectory. Without one nothing changes."""
        score = self._read(trajectory)
        if isinstance(score, Score):
            return self.accept(pending, trajectory, score)
        self.problems[score] += 1
        return ScoreResult(None, None, facts={"failure_detail": score})

    def _read(self, trajectory: Trajectory) -> Score | str:
        """Return the score, or why there is none."""
        path = self._folders[trajectory.id, trajectory.started_at] / "eval_result.json"
        if not path.exists():
            return f"{path.name} is missing"
        try:
            result = _Result.model_validate(read_json(path))
        except (StoreError, ValidationError):
            return f"{path.name} is no result of webarena-verified"
        # its score is then 0, which says nothing about the episode
        if result.status == "error":
            messages = (one.error_msg for one in (result, *result.evaluators_results))
            return f"error: {next(filter(None, messages), 'without a message')}"
        if (result.status == "success") is not bool(result.score):
            return f"{result.status} with the score {result.score}"
        digest = digest_json([result.version, result.evaluators, result.tasks])
        return Score(source="check", value=result.score, detail=f"webarena-verified {result.version}", digest=digest)
