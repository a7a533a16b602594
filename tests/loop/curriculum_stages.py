"""A curriculum without browser, server and trainer: its own steps are real, with those three told what to do.

New tasks are asked for over real HTTP, plans are drawn and kept, episodes and verdicts are stored, checkpoints are
published.
"""

from pathlib import Path
from typing import Any, ClassVar

from tests.cli.runs import model
from tests.curriculum.generating import SHOP, task
from tests.records.builders import SOLVED, published
from tests.rewards.cases import seen
from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.loop import Loop
from webgym_cli.loop.phases import Phases, phase_settings, plan_curriculum
from webgym_cli.loop.scoring import score as score_by_model
from webgym_cli.records.failure import Stop
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.task import Episode, Split
from webgym_cli.records.trajectory import Outcome, Trajectory
from webgym_cli.rewards.selection import ScoringPlan, load_pending
from webgym_cli.rollout.plan import write_plan
from webgym_cli.store.buffer import append, append_judgement, read_plan
from webgym_cli.store.checkpoints import version
from webgym_cli.store.run import RunDir, create_or_open, now

WORDS = ('Find 3 reviews of "Blue hat"', 'Put 2 of "Red coat" into the cart', "Open the wish list", "Log in as Emma")
KNOWN = "Log in as Emma"
"""The one task that the policy can do from the beginning."""


class Killed(BaseException):
    """Stands for a kill: nothing in the loop may catch it."""


class Served:
    """A server that nobody needs."""

    async def release_gpus(self) -> None:
        """There is room."""

    async def stop(self) -> None:
        """It does not run."""


class Told(StageContext):
    """A context whose episodes, verdicts and trainings are made up. `dies`: the call, by name, at which it is killed.

    `calls` notes what was done, over all contexts of a test; `tried` the episodes that were run.
    """

    dies: ClassVar[str] = ""
    calls: ClassVar[list[Any]] = []
    tried: ClassVar[list[str]] = []

    def __post_init__(self) -> None:
        """Begin with a server that is none."""
        super().__post_init__()
        self.running = Served()  # type: ignore[assignment]

    async def rollout(self, split: Split, policy: str, episodes: int | None = None) -> dict[str, Any]:
        """Store an answer for each episode that is owed; a test knows its score, the others wait for a judge."""
        from webgym_cli.loop.rollout_setup import plan_current_rollout

        name = f"{'survey ' * (self.run.root.name == 'survey')}{split}"
        plan = plan_current_rollout(self.run, self.settings, split, "vllm", episodes)
        write_plan(self.run, plan)
        self._die(f"{name} {plan.iteration} planned")
        for number, owed in enumerate(plan.owed):
            append(self.run, _answered(owed.episode, scored=split is Split.TEST or policy == "oracle"))
            self.tried.append(f"{self.run.root.name} {owed.episode.id}")
            self._die(f"{name} {plan.iteration} episode {number}")
        self.calls.append((name, plan.iteration, len(plan.owed)))
        known = {"success_rate": 0.25, "episodes": 4, "successes": 1, "interval": [0.05, 0.7]}
        return {"event": "rollout", "iteration": plan.iteration, **known}

    async def score(self, plan: ScoringPlan) -> dict[str, Any]:
        """Judge what is owed: only the task that is known is done. A reward model is asked."""
        if plan.scorer.stage == "score":
            return await score_by_model(self, plan)
        for number, (one, trajectory) in enumerate(load_pending(self.run, plan.pending)):
            verdict = {"success": KNOWN in trajectory.instruction, "models": {"verdict": "told"}, "judged_at": now()}
            judgement = Judgement(trajectory=one.id, source="judge", settings_digest="0" * 64, **verdict)
            append_judgement(self.run, one.split, one.iteration, judgement)
            self._die(f"judge {self.run.root.name} {one.iteration} verdict {number}")
        self.calls.append(("judge", self.run.root.name, len(plan.pending)))
        return {}

    async def prepare(self, *, again: bool = False) -> Any:
        """Prepare nothing."""
        self._die(f"prepare {version(self.run)}")
        self.calls.append(("prepare", version(self.run)))

    async def train(self) -> None:
        """Publish the next version."""
        before = version(self.run)
        self._die(f"training {before}")
        published(self.run, self.settings, before + 1)
        self._die(f"training {before} published")
        self.calls.append(("train", before))

    def _die(self, at: str) -> None:
        if self.dies == at:
            type(self).dies = ""
            raise Killed(at)


def _answered(episode: Episode, *, scored: bool) -> Trajectory:
    outcome = SOLVED if scored else Outcome(reward=None, stop=Stop.ANSWERED, answer="done")
    facts = episode.model_dump(include={"split", "iteration", "seed"}) | {"policy": "told", "started_at": now()}
    return Trajectory(
        id=episode.id,
        episode=episode.id,
        task=episode.task,
        instruction=episode.task.instruction,
        prompt={"interaction_mode": "coordinates"},
        steps=(seen(0, 0, title="The shop"),),
        outcome=outcome,
        **facts,
    )


def settings_in(folder: Path, *more: str) -> Settings:
    """Return settings of two phases of three tasks, on four tasks of a shop of which one can be done."""
    file = folder / "tasks.jsonl"
    if not file.exists():
        file.write_text("".join(f"{task(words, SHOP).model_dump_json()}\n" for words in WORDS))
        model(folder / "model")
    result = (
        *(f"policy_config.base_model={folder / 'model'}", "policy_config.template=qwen3_vl_nothink"),
        *(f"tasks.train={file}", "rollout.test_episodes=2", "log_config.tracking=disabled"),
        *("curriculum.phases=2", "curriculum.tasks_per_phase=3", "curriculum.score=judge"),
        *("judge.base_url=http://127.0.0.1:9/v1", "generate.base_url=scripted", "generate.tasks_per_request=8"),
    )
    return load(overrides=[*result, *more])


async def ran(run: RunDir, settings: Settings, **options: Any) -> list[dict[str, Any]]:
    """Run the command's work once and return all that was shown."""
    shown: list[dict[str, Any]] = []
    plan = plan_curriculum(run, settings, **options)
    settings = phase_settings(settings)
    create_or_open(run, settings)
    run.logs.mkdir(exist_ok=True)
    async with Told(run, settings, run.logs, shown.append) as context:
        await Loop(plan.loop, context, Phases(context)).execute()
    return shown


def planned_instructions(run: RunDir, iteration: int) -> list[str]:
    """Return what the planned episodes of an iteration ask."""
    return [episode.task.instruction for episode in read_plan(run, Split.TRAIN, iteration)]
