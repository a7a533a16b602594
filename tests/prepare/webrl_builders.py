"""A run in its second phase, the run of demonstrations before it, and whoever scores their actions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.prepare.rl_builders import ANSWER, CALL, episode, served, settings, store, talk, write_plan
from tests.records.builders import CRASHED, UNSOLVED, checkpoint
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.prepare.rl import execute as stage
from webgym_cli.prepare.rl.plan import plan_batch
from webgym_cli.prepare.rl.score import LogprobScoring
from webgym_cli.records.dataset import RlData
from webgym_cli.records.events import Event
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.checkpoints import policy_path, publish
from webgym_cli.store.index.query import open_index
from webgym_cli.store.run import RunDir, create_or_open

WEBRL = "train.algorithm=webrl"
POLICY = "model_20250115_143022"
OFTEN, SELDOM, NEVER = -0.02, -0.3, -2.0
"""Log-probabilities of what is below, within and above WebRL's window."""


class Scorer:
    """Gives each token of an action the same log-probability. `broken`: after so many answers it fails."""

    def __init__(self, of: Callable[[Sequence[int]], float] | None = None, broken: int | None = None) -> None:
        self.requests: list[tuple[list[int], tuple[int, ...]]] = []
        self._of = of or (lambda response: SELDOM)
        self._broken = broken

    async def of(self, prompt: list[int], response: tuple[int, ...]) -> list[float] | None:
        if self._broken is not None and len(self.requests) >= self._broken:
            raise OSError("the machine is gone")
        self.requests.append((prompt, response))
        return [self._of(response)] * len(response)

    async def reach(self) -> Scorer:
        return self


def at(trajectory: Trajectory, iteration: int) -> Trajectory:
    """Return a trajectory as one of another iteration."""
    name = trajectory.episode.replace("-0000-", f"-{iteration:04d}-")
    return trajectory.model_copy(update={"id": name, "episode": name, "iteration": iteration})


def demonstrations(run: RunDir, model: Path) -> RunDir:
    """Fill a run with what an expert showed: two tasks solved, one not, one that crashed."""
    create_or_open(run, settings(model))
    shown = [talk(number, policy="oracle", outcome=how) for number, how in ((1, UNSOLVED), (2, CRASHED))]
    store(run, talk(0, policy="oracle"), *shown, talk(3, CALL, CALL, ANSWER, policy="oracle"))
    return run


def second_phase(run: RunDir, model: Path, *overrides: str) -> Settings:
    """Fill a run: two episodes before its first training, of tasks 0 and 4, and three after it, of 5, 6 and 7."""
    with_, tokens = settings(model, WEBRL, *overrides), ModelTokens(str(model))
    create_or_open(run, with_)
    write_plan(run, episode(0), episode(4))
    store(run, served(talk(0), tokens), served(talk(4), tokens))
    publish(run, with_, Path(shutil.copytree(model, run.checkpoints / ".new")), checkpoint(name=POLICY))
    write_plan(run, *(episode(number, iteration=1) for number in (5, 6, 7)))
    ends = ((5, {}), (6, {"outcome": UNSOLVED}), (7, {"outcome": CRASHED}))
    now = [served(talk(number, **how), tokens) for number, how in ends]
    store(run, *(at(one, 1) for one in now))
    return with_


async def prepared(run: RunDir, with_: Settings, scorer: Scorer) -> RlData:
    """Prepare the run's batch."""
    with open_index(run) as index:
        plan = plan_batch(run, with_, index, transitions=with_.train.algorithm == "webrl")
        assert plan.replay is not None
        tokens = ModelTokens(str(policy_path(run, with_)))
        how = {"limit": with_.rl.data.max_row_tokens, "make_client": scorer.reach}
        weights = await LogprobScoring(plan.replay, run, tokens, _unheard, **how).execute()
        return stage.execute(plan, run, with_, _unheard, weights)


def _unheard(event: Event) -> None:
    """Take an event."""


def experience(*runs: RunDir) -> str:
    """Return the override that names runs."""
    return f"rl.replay.experience={json.dumps([str(run.root) for run in runs])}"
