"""Writes the training data of an outcome reward model: the prompts of `webgym score` with YES or NO as response."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from webgym_cli.agent.actions.action_sets import find_action_set
from webgym_cli.agent.prompts.orm_prompt import ANSWERS, build_orm_prompt
from webgym_cli.agent.tokens.orm_tokens import FileTokenizer, FittedPrompt, OrmError, fit_prompt
from webgym_cli.config.model import Settings
from webgym_cli.errors import WebGymError
from webgym_cli.prepare.orm.plan import LabelledTrajectory, OrmDataPlan, OrmDrop
from webgym_cli.prepare.sft.convert import TEMPLATE_TAIL, build_sample
from webgym_cli.prepare.sft.execute import shuffle_and_split, write_dataset
from webgym_cli.prepare.sft.sampler import PROGRESS_EVERY
from webgym_cli.records.dataset import Prepared
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.sample import Message, Sample
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import scan_stored
from webgym_cli.store.checkpoints import policy_path
from webgym_cli.store.run import RunDir

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
