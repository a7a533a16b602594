"""Training data of an outcome reward model: the prompts of `webgym score`, with another source's verdict as reply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from webgym_cli.agent.actions.action_sets import find_action_set
from webgym_cli.agent.prompts.orm_prompt import ANSWERS, build_orm_prompt, compute_prompt_digest
from webgym_cli.agent.tokens.orm_tokens import FileTokenizer, FittedPrompt, OrmError, fit_prompt
from webgym_cli.config.model import Settings
from webgym_cli.errors import MissingStageError, SettingsError, WebGymError
from webgym_cli.prepare.sft.convert import TEMPLATE_TAIL, build_sample
from webgym_cli.prepare.sft.execute import PROGRESS_EVERY, shuffle_and_split, write_dataset
from webgym_cli.prepare.sft.sampling import shuffle_by_seed
from webgym_cli.records.dataset import Prepared
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.failure import is_rolled_out
from webgym_cli.records.judgement import Judgement, JudgementSource, environment_verdict, newest_verdict
from webgym_cli.records.sample import Message, Sample
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import read_judgements, scan_stored
from webgym_cli.store.checkpoints import policy_path, version
from webgym_cli.store.run import RunDir
from webgym_cli.util.json_values import digest_json


class OrmDrop(StrEnum):
    """Why a trajectory is not used."""

    INFRASTRUCTURE = "infrastructure_failure"
    """The episode failed because of infrastructure, so it has no label."""
    NO_STEPS = "no_steps"
    """The episode has no steps."""
    NO_VERDICT = "no_verdict"
    """No source in `orm.labels` has a verdict."""
    UNBALANCED = "left_out_for_balance"
    """Its class has more trajectories than the other one."""
    TOO_LONG = "too_long"
    """Not even the ends of the prompt fit into `algorithm_config.cutoff_len`."""


@dataclass(frozen=True, slots=True)
class LabelledTrajectory:
    """A trajectory with its label."""

    id: str
    iteration: int
    done: bool
    source: str
    """Source of the label."""


@dataclass(frozen=True, slots=True)
class OrmDataPlan:
    """Plan of `prepare --target orm`."""

    iteration: int
    """Number of earlier trainings of the model."""
    read: tuple[int, ...]
    """Iterations to read, oldest first."""
    chosen: tuple[LabelledTrajectory, ...]
    """In the order of the store."""
    dropped: dict[str, int]
    """Unused trajectories by `OrmDrop`, zeros included."""
    damaged: tuple[str, ...] = ()

    def digest(self, settings: Settings) -> str:
        """Return the SHA-256 of everything that determines the samples."""
        chosen = [(one.id, one.iteration, one.done) for one in self.chosen]
        algorithm = settings.algorithm_config
        shape = [
            settings.sampling_seed,
            algorithm.held_out_ratio,
            algorithm.cutoff_len,
            compute_prompt_digest(settings.orm),
        ]
        return digest_json([self.iteration, shape, chosen])

    def to_json(self) -> dict[str, object]:
        """Return the output of `--dry-run`."""
        done = sum(labelled.done for labelled in self.chosen)
        return {
            "event": "plan",
            "stage": "prepare_orm",
            "iteration": self.iteration,
            "iterations_read": list(self.read),
            "trajectories": len(self.chosen) + sum(self.dropped.values()),
            "yes": done,
            "no": len(self.chosen) - done,
            "by_source": dict(Counter(one.source for one in self.chosen)),
            "dropped_trajectories": self.dropped,
            "damaged_lines": list(self.damaged),
        }


def plan_orm_dataset(run: RunDir, settings: Settings) -> OrmDataPlan:
    """Return the plan for a run's training episodes and the settings of its outcome reward model.

    Raises `MissingStageError` without any trajectory, `SettingsError` for a model that reasons before it answers.
    """
    if settings.policy_config.thinking:
        raise SettingsError(
            f"policy_config.base_model: {settings.policy_config.base_model} thinks first, and an outcome reward model "
            "answers with its first token",
            hint="-s policy_config.base_model=MODEL takes one of the family that answers at once",
        )
    read = run.list_iterations(Split.TRAIN)[-settings.algorithm_config.last_n_iterations :]
    if not read:
        raise MissingStageError(f"{run.root}: no training trajectories", hint=f"webgym rollout {run.root}")
    dropped: Counter[str] = Counter(dict.fromkeys((drop.value for drop in OrmDrop), 0))
    damage, labelled = list[str](), []
    for iteration in read:
        judgements = read_judgements(run, Split.TRAIN, iteration, damage)
        for trajectory in scan_stored(run, Split.TRAIN, iteration, damage):
            example = find_label(trajectory, judgements.get(trajectory.id, ()), settings.orm.labels)
            if isinstance(example, OrmDrop):
                dropped[example.value] += 1
            else:
                labelled.append(example)
    # equally many of both classes, selected by the seed: else the model learns which of them is more frequent
    kinds = [[one for one in labelled if one.done is done] for done in (True, False)]
    count, seed = min(map(len, kinds)), f"{settings.sampling_seed}/orm"
    kept = {one.id for one in chain.from_iterable(shuffle_by_seed(kind, seed)[:count] for kind in kinds)}
    chosen = [one for one in labelled if one.id in kept]
    dropped[OrmDrop.UNBALANCED.value] = len(labelled) - len(chosen)
    return OrmDataPlan(version(run.orm), tuple(read), tuple(chosen), dict(dropped), tuple(damage))


def require_labels(plan: OrmDataPlan, run: RunDir) -> None:
    """Raise `WebGymError` with the reasons if there is nothing to train on."""
    if plan.chosen:
        return
    reasons = ", ".join(f"{count} x {reason}" for reason, count in plan.dropped.items() if count)
    unbalanced = plan.dropped[OrmDrop.UNBALANCED.value]
    raise WebGymError(
        f"{run.root}: no trajectory to train an outcome reward model on ({reasons or 'no trajectories'})",
        hint=f"all have the same verdict: webgym rollout {run.root}" if unbalanced else f"webgym judge {run.root}",
    )


def find_label(
    trajectory: Trajectory, judgements: Sequence[Judgement], sources: Sequence[str]
) -> LabelledTrajectory | OrmDrop:
    """Return the verdict of the first source that has one, or why there is none. `judgements`: oldest first."""
    if not is_rolled_out(trajectory.outcome.failure):
        return OrmDrop.INFRASTRUCTURE
    if not trajectory.steps:
        return OrmDrop.NO_STEPS
    verdicts: dict[str, bool | None] = {"environment": environment_verdict(trajectory)}
    by_source: tuple[JudgementSource, ...] = ("judge", "orm")
    for judged_by in by_source:
        if newest := newest_verdict(judgements, judged_by):
            verdicts[judged_by] = newest.success
    for source in sources:
        if (done := verdicts.get(source)) is not None:
            return LabelledTrajectory(trajectory.id, trajectory.iteration, done, source)
    return OrmDrop.NO_VERDICT


YES, NO = ANSWERS


async def execute_orm(plan: OrmDataPlan, run: RunDir, settings: Settings, sink: EventSink) -> Prepared:
    """Write the dataset of a run's outcome reward model into `run.orm`. The same plan and seed give the same bytes.

    Raises `StoreError`, `SettingsError` if the model has no tokenizer, `WebGymError` if no prompt fits.
    """
    tokens = FileTokenizer(str(policy_path(run.orm, settings)))
    answer = max([len(await tokens.ids(word)) for word in ANSWERS]) + TEMPLATE_TAIL
    longest = min(settings.orm.max_tokens, settings.algorithm_config.cutoff_len - answer)
    asking = settings.orm.model_copy(update={"max_tokens": longest})
    samples: list[Sample] = []
    dropped, cut = Counter(plan.dropped), 0
    wanted = {(one.iteration, one.id): one for one in plan.chosen}
    stored = chain.from_iterable(scan_stored(run, Split.TRAIN, iteration) for iteration in plan.read)
    chosen = (trajectory for trajectory in stored if (trajectory.iteration, trajectory.id) in wanted)
    for done, trajectory in enumerate(chosen, 1):
        try:
            describe = find_action_set(trajectory.prompt).describe_step
            fitted = await fit_prompt(build_orm_prompt(trajectory, describe), tokens, asking)
        except OrmError:
            dropped[OrmDrop.TOO_LONG.value] += 1
        else:
            labelled = wanted[trajectory.iteration, trajectory.id]
            samples.append(_sample(labelled, trajectory, fitted, asking.system_prompt, answer))
            cut += fitted.cut > 0
        if done % PROGRESS_EVERY == 0 or done == len(plan.chosen):
            sink({"event": "prepare_progress", "bar": "prepare", "done": done, "total": len(plan.chosen)})
    if not samples:
        raise WebGymError(
            f"{run.root}: no prompt fits into {longest} tokens", hint="-s algorithm_config.cutoff_len=16384"
        )
    left_out = {**plan.to_json(), "dropped_trajectories": dict(dropped), "cut": cut, "samples": len(samples)}
    prepared = write_dataset(
        run.orm, settings, shuffle_and_split(samples, settings, plan.iteration), left_out, plan.digest(settings)
    )
    sink(make_event("prepare", **prepared.model_dump(mode="json"), dropped_trajectories=dict(dropped), cut=cut))
    return prepared


def _sample(
    labelled: LabelledTrajectory, trajectory: Trajectory, fitted: FittedPrompt, system: str, answer: int
) -> Sample:
    reply = Message(role="assistant", content=YES if labelled.done else NO)
    messages, step = (*fitted.prompt.messages(system), reply), len(trajectory.steps) - 1
    return build_sample(trajectory, step, messages, reward=float(labelled.done), tokens=fitted.count + answer)
