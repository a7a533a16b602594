"""The batch of sampled tokens for policy gradients (`rl_data/`) as kinds of training data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.config.estimators import ESTIMATORS, AdvantageEstimator
from webgym_cli.config.model import Settings
from webgym_cli.errors import SettingsError
from webgym_cli.prepare.data import PreparedData
from webgym_cli.prepare.groups import resolve_group_by
from webgym_cli.records.batch import BatchSelection
from webgym_cli.records.dataset import PreparedRecord, TrainingData
from webgym_cli.records.events import EventSink
from webgym_cli.store.checkpoints import algorithm, policy_path
from webgym_cli.store.prepared import describe_batch, find_batch, read_batch
from webgym_cli.store.run import RunDir
from webgym_cli.util.optional import known_or
from webgym_cli.util.registry import lazy

if TYPE_CHECKING:
    from webgym_cli.agent.client.prompt_logprobs import ClientFactory
    from webgym_cli.prepare.rl.plan import RlPlan
    from webgym_cli.prepare.rl.score import ScoringResult
    from webgym_cli.store.index.query import Index

_MEMBERS = "SELECT group_id, id, episode, reward, reason FROM rl_batch ORDER BY number"


@dataclass(frozen=True, slots=True)
class GradientBatch(PreparedData["RlPlan"]):
    """All trajectories of an iteration with their token ids, log-probabilities and rewards.

    What plans and writes is imported when it is used: training only reads.
    """

    anchors: bool = False
    """A row is one step, with the digest of its observation; also if the estimator needs that."""
    transitions: bool = False
    """A row is one step with the state after it, and earlier experience is replayed."""

    needs_logprobs = True
    find_written = staticmethod(find_batch)
    group_by = staticmethod(resolve_group_by)
    write = staticmethod(lazy("webgym_cli.prepare.rl.execute:execute"))

    def folder(self, run: RunDir) -> Path:
        """Return `rl_data/`."""
        return run.rl_data

    def plan(self, run: RunDir, settings: Settings, index: Index, selection: BatchSelection | None = None) -> RlPlan:
        """See `plan_batch`."""
        from webgym_cli.prepare.rl.plan import plan_batch

        estimator = _find_estimator(run, settings)
        return plan_batch(
            run,
            settings,
            index,
            transitions=self.transitions,
            anchors=self.anchors or (estimator is not None and estimator.needs_anchors),
            group_relative=_lacks_gradient(estimator, settings),
            selection=selection,
        )

    def is_made_by(self, prepared: PreparedRecord, plan: RlPlan) -> bool:
        """Whether the batch was written by an equal plan, of an older version too."""
        is_former = plan.replay is not None and prepared.plan_digest == plan.digest(former=True)
        return is_former or prepared.plan_digest == plan.digest()

    def list_members(
        self, plan: RlPlan, run: RunDir, settings: Settings, index: Index, selection: BatchSelection | None
    ) -> Iterable[dict[str, Any]]:
        """Return all trajectories of the batch."""
        return index.rows(_MEMBERS)

    def read(self, run: RunDir, settings: Settings) -> TrainingData:
        """See `read_batch`."""
        return describe_batch(run, read_batch(run, settings, webrl=self.transitions))

    def needs_scores(self, plan: RlPlan) -> bool:
        """Whether the plan replays."""
        return plan.replay is not None

    async def score(
        self, plan: RlPlan, run: RunDir, settings: Settings, sink: EventSink, reach: ClientFactory
    ) -> ScoringResult:
        """Return the log-probabilities of the replay's actions under the policy. Raises as `LogprobScoring` does."""
        from webgym_cli.agent.tokens.tokens import ModelTokens
        from webgym_cli.prepare.rl.score import LogprobScoring

        assert plan.replay is not None
        tokens, limit = ModelTokens(str(policy_path(run, settings))), settings.rl.data.max_row_tokens
        return await LogprobScoring(plan.replay, run, tokens, sink, limit=limit, make_client=reach).execute()

    def filters_groups(self, run: RunDir, settings: Settings) -> bool:
        """By the estimator unless the settings say it."""
        estimator = _find_estimator(run, settings)
        return known_or(settings.rl.data.filter_groups.enable, _lacks_gradient(estimator, settings))

    def check_async(self, settings: Settings) -> None:
        """Refuse settings by which an episode is trained on twice, or with log-probabilities of another policy."""
        if self.transitions:
            raise SettingsError(
                f"train.algorithm={settings.train.algorithm} trains in turns with its rollouts",
                hint="-s loop.mode=sync",
            )
        if settings.rl.data.shaping and settings.rl.data.filter_groups.enable is not False:
            raise SettingsError(
                "rl.data.shaping: loop.mode=async filters groups by their stored rewards",
                hint="-s rl.data.filter_groups.enable=false, or -s loop.mode=sync",
            )
        if settings.rl.data.last_n_iterations != 1:
            raise SettingsError(
                "loop.mode=async trains on each episode once: it needs rl.data.last_n_iterations=1",
                hint="-s rl.data.last_n_iterations=1",
            )
        if settings.loop.max_staleness and not settings.rl.actor.recompute_old_log_probs:
            raise SettingsError(
                "loop.mode=async: the policy that acts may be older than the one that is trained, so that the trainer "
                "has to compute the old log-probabilities itself",
                hint="-s rl.actor.recompute_old_log_probs=true, or -s loop.max_staleness=0",
            )


def _find_estimator(run: RunDir, settings: Settings) -> AdvantageEstimator | None:
    """Return the advantage estimator of the current iteration; None if it trains with another backend."""
    name = algorithm(run, settings)
    return ESTIMATORS.find(name) if name in ESTIMATORS.names() else None


def _lacks_gradient(estimator: AdvantageEstimator | None, settings: Settings) -> bool:
    """Whether a group with equal rewards has none; discounted returns of steps prefer the shorter success."""
    how = settings.rl.algorithm
    if estimator is None or (estimator.needs_anchors and how.step_advantage_w and how.gamma < 1):
        return False
    return estimator.group_relative


BATCH = GradientBatch()
STEPS = GradientBatch(anchors=True)
TRANSITIONS = GradientBatch(transitions=True)
