"""Samples the dataset and writes it with its training configuration into a temporary folder that is then renamed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import Any

from webgym_cli.agent.prompts.webrl_prompt import STOP, is_raw
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.errors import WebGymError
from webgym_cli.prepare.sft.convert import Converter
from webgym_cli.prepare.sft.filters import DropReason, list_content_reasons
from webgym_cli.prepare.sft.plan import PreparePlan, StepCandidate
from webgym_cli.prepare.sft.sampling import compute_quotas, shuffle_by_seed
from webgym_cli.prepare.sft.sharegpt import build_dataset_info, dump_json_array, to_sharegpt
from webgym_cli.prepare.sft.train_config import write_training_files
from webgym_cli.records.dataset import (
    DATASET_INFO,
    TRAIN_FILE,
    VALIDATION_FILE,
    Prepared,
)
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.sample import Message, Sample
from webgym_cli.store.buffer import prefetch, read_or_report
from webgym_cli.store.checkpoints import new_name, policy_name, policy_path, version
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.util.files import rebuild_folder, write_atomic, write_json
from webgym_cli.util.gc_pause import rare_collections
from webgym_cli.util.optional import when

# Steps between two progress events.
PROGRESS_EVERY = 50
# The first page has a tenth more steps than wanted, plus this many, so that most samplings need no second page.
SPARE = 16


class StepSampler:
    """One sampling."""

    def __init__(
        self, plan: PreparePlan, run: RunDir, settings: Settings, converter: Converter, sink: EventSink
    ) -> None:
        self._run = run
        self._converter = converter
        self._sink = sink
        self._algorithm = settings.algorithm_config
        self._left = plan.shares
        wanted = self._compute_quotas()
        self._queues = {share: plan.pool.draw(share, count + count // 10 + SPARE) for share, count in wanted.items()}
        self._taken: dict[int, list[Sample]] = {share: [] for share in self._left}
        self._tried = 0
        # Log-probabilities are not needed, token ids only to compare a response with the sampled one.
        self._unread = ("logprobs",) if self._algorithm.filter_retokenized else ("logprobs", "token_ids")
        self.dropped = {drop.value: 0 for drop in list_content_reasons(settings)}
        """Unusable steps by reason, zeros included."""
        self.samples: list[Sample] = []
        """In sampling order, the oldest iteration's first."""
        self.damaged: list[str] = []
        """Unreadable lines, each once."""

    def execute(self) -> StepSampler:
        """Sample until each share has reached its quota; unusable steps are replaced. Raises `StoreError`."""
        while missing := self._count_missing():
            for share, count in missing.items():
                batch = list(islice(self._queues[share], count))
                self._left[share] -= count - len(batch)  # empty unless another table has replaced this one
                for result in self._convert_batch(batch):
                    if isinstance(result, DropReason):
                        self.dropped[result.value] += 1
                        self._left[share] -= 1
                    else:
                        self._taken[share].append(result)
        self.samples = list(chain.from_iterable(self._taken.values()))
        return self

    def _compute_quotas(self) -> dict[int, int]:
        return compute_quotas(self._left, self._algorithm.positive_samples_to_train, self._algorithm.recency_bias_power)

    def _count_missing(self) -> dict[int, int]:
        """Return the number of missing samples of each share, the newest first, because it is checked first."""
        goal = self._compute_quotas()
        room = sum(goal.values()) - sum(map(len, self._taken.values()))
        missing: dict[int, int] = {}
        for share in reversed(goal):
            count = min(room, goal[share] - len(self._taken[share]))
            if count > 0:
                missing[share] = count
                room -= count
        return missing

    def _convert_batch(self, batch: list[StepCandidate]) -> Iterator[Sample | DropReason]:
        """Yield the sample of each candidate in order, or the reason why there is none."""
        results: dict[StepCandidate, Sample | DropReason] = {}
        # By file and offset: one sequential pass, and each trajectory is parsed once for all its steps.
        in_place = sorted(batch, key=lambda candidate: (candidate.place.file, candidate.place.offset))
        prefetch(self._run, (candidate.place for candidate in in_place))
        for place, of_one in groupby(in_place, key=lambda candidate: candidate.place):
            trajectory = read_or_report(self._run, place, self.damaged, self._sink, without=self._unread)
            for candidate in of_one:
                results[candidate] = (
                    self._converter.convert(trajectory, candidate.step) if trajectory else DropReason.DAMAGED
                )
                self._report_progress(len(results), len(batch))
        return (results[candidate] for candidate in batch)

    def _report_progress(self, done: int, batch: int) -> None:
        """Report the number of tried steps, periodically and at the end of a batch."""
        self._tried += 1
        if self._tried % PROGRESS_EVERY == 0 or done == batch:
            total = max(self._tried, sum(self._compute_quotas().values()))
            self._sink({"event": "prepare_progress", "bar": "prepare", "done": self._tried, "total": total})


# What to do where most drawn steps were dropped for one reason.
_ADVICE = {
    DropReason.RETOKENIZED.value: "-s algorithm_config.filter_retokenized=false imitates the texts, in other tokens "
    "than were sampled; policy gradients train the sampled ones"
}


@rare_collections()
def execute(plan: PreparePlan, run: RunDir, settings: Settings, sink: EventSink) -> Prepared:
    """Write `llamafactory_data/`. The same plan and seed give the same samples, byte for byte.

    The plan's index must be open. Raises `StoreError`, and `WebGymError` if no sampled step is usable.
    """
    tokens = ModelTokens(str(policy_path(run, settings)))
    converter = Converter(settings, tokens, ScreenshotStore(run.screenshots))
    drawn = StepSampler(plan, run, settings, converter, sink).execute()
    over_long = _report_over_long(converter, settings.algorithm_config.cutoff_len, sink)
    if not drawn.samples:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in drawn.dropped.items() if count)
        hint = _ADVICE.get(max(drawn.dropped, key=drawn.dropped.__getitem__), f"webgym prepare {run.root} --dry-run")
        raise WebGymError(f"{run.root}: every drawn step was dropped ({reasons})", hint=hint)
    parts = shuffle_and_split(drawn.samples, settings, plan.iteration)
    counts, newest = plan.counts, plan.read[-1]
    if not counts.eligible[newest]:
        message = f"no step of iteration {newest} is fit for training: the dataset has steps of older iterations only"
        sink(make_event("note", message=message))
    left_out = {
        "trajectories_read": counts.trajectories,
        "steps_read": counts.steps,
        "eligible_steps": plan.eligible,
        "samples": len(drawn.samples),
        "samples_by_iteration": {
            str(iteration): sum(sample.iteration == iteration for sample in drawn.samples) for iteration in plan.read
        },
        "dropped_trajectories": counts.dropped_trajectories,
        "steps_of_dropped_trajectories": counts.steps_of_dropped_trajectories,
        "failures": counts.failures,
        "dropped_steps": {**counts.dropped_steps, **drawn.dropped},
        "not_drawn_steps": plan.eligible - len(drawn.samples) - sum(drawn.dropped.values()),
        "damaged_lines": [*plan.damaged, *drawn.damaged],
        "over_cutoff_len": over_long,
    }
    prepared = write_dataset(run, settings, parts, left_out, plan.digest())
    sink(make_event("prepare", **prepared.model_dump(mode="json"), dropped_steps=drawn.dropped))
    return prepared


def shuffle_and_split(
    samples: Sequence[Sample], settings: Settings, iteration: int
) -> tuple[list[Sample], list[Sample]]:
    """Return samples for training and validation, in the seed's order; a trajectory's steps go to the same side."""
    seed, ratio = f"{settings.sampling_seed}/{iteration}", settings.algorithm_config.held_out_ratio
    samples = shuffle_by_seed(samples, f"{seed}/order")
    trajectories = sorted({sample.trajectory for sample in samples})
    most = max(0, len(trajectories) - 1)  # at least one trajectory must remain for training
    held_out = when(ratio, min(most, max(1, round(ratio * len(trajectories)))))
    # By trajectory: steps of one episode share screenshots, so splitting them would leak into validation.
    chosen = set(shuffle_by_seed(trajectories, f"{seed}/split")[:held_out])
    train = [sample for sample in samples if sample.trajectory not in chosen]
    return train, [sample for sample in samples if sample.trajectory in chosen]


def write_dataset(
    run: RunDir,
    settings: Settings,
    parts: tuple[list[Sample], list[Sample]],
    left_out: dict[str, Any],
    plan_digest: str,
) -> Prepared:
    """Write a dataset for the current iteration with its training configuration. Raises `StoreError`."""
    store, (train, validation) = ScreenshotStore(run.screenshots), parts
    fit = template_fit(settings, ModelTokens(str(policy_path(run, settings))))
    files = {TRAIN_FILE: train, **when(validation, {VALIDATION_FILE: validation})}
    digest = hashlib.sha256()
    with rebuild_folder(run.dataset) as folder:
        for name, samples in files.items():
            content = dump_json_array(to_sharegpt(fit(sample), store.locate_beside) for sample in samples)
            digest.update(content.encode())
            write_atomic(folder / name, content)
        prepared = Prepared(
            iteration=version(run),
            model_name=new_name(run),
            parent=policy_name(run, settings),
            data_digest=digest.hexdigest(),
            plan_digest=plan_digest,
            train_samples=len(train),
            val_samples=len(validation),
            created_at=now(),
        )
        write_json(folder / DATASET_INFO, build_dataset_info(validation=bool(validation)))
        write_json(folder / "dropped.json", left_out)
        # prepared.json is written last and the folder renamed afterwards, so a dataset is complete or absent.
        return write_training_files(folder, run, settings, prepared)


def _report_over_long(converter: Converter, limit: int, sink: EventSink) -> dict[str, int]:
    """Return how many sampled steps exceed the length limit and what happened to them; report it if there are any."""
    left_out = converter.over_long - converter.shortened
    counts = {
        "cutoff_len": limit,
        "steps": converter.over_long,
        "longest_tokens": converter.longest,
        "shortened": converter.shortened,
        "left_out": left_out,
    }
    if converter.over_long:
        message = (
            f"{converter.over_long} drawn steps have more tokens than algorithm_config.cutoff_len ({limit}), the "
            f"longest {converter.longest}: {converter.shortened} lost their oldest rounds, {left_out} were left out"
        )
        sink(make_event("over_cutoff_len", **counts, message=message))
    return counts


# Text that LLaMA-Factory's template adds before a response, but that the model samples itself.
OPENINGS = {"glm4": "\n"}


def template_fit(settings: Settings, tokens: ModelTokens) -> Callable[[Sample], Sample]:
    """Return a function that adapts a sample so that LLaMA-Factory renders it as it was sent.

    Llama's chat templates put dates before the system message, which become part of the message, and strip texts.
    """
    opening = OPENINGS.get(settings.policy_config.template, "")

    def fit(sample: Sample) -> Sample:
        *prompt, reply = sample.messages
        if is_raw(prompt):
            # LLaMA-Factory's template `empty` adds nothing
            raw = prompt[0].model_copy(update={"content": tokens.first + prompt[0].content})
            ended = reply.model_copy(update={"content": reply.content + STOP})
            return sample.model_copy(update={"messages": (raw, ended)})
        if tokens.strips:
            prompt = [message.model_copy(update={"content": message.content.strip()}) for message in prompt]
        # not above: raw texts need no chat template, and base models have none
        if block := tokens.date_block:
            has_system = prompt[0].role == "system"
            system = block + when(has_system, prompt[0].content)
            prompt = [Message(role="system", content=system), *prompt[has_system:]]
        reply = reply.model_copy(update={"content": reply.content.removeprefix(opening)})
        return sample.model_copy(update={"messages": (*prompt, reply)})

    return fit
