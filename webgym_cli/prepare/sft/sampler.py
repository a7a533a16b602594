"""Samples the dataset, reading each trajectory once per batch and keeping only the samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby, islice

from webgym_cli.config.model import Settings
from webgym_cli.prepare.sft.candidates import StepCandidate
from webgym_cli.prepare.sft.convert import Converter
from webgym_cli.prepare.sft.filters import DropReason, list_content_reasons
from webgym_cli.prepare.sft.plan import PreparePlan
from webgym_cli.prepare.sft.sampling import compute_quotas
from webgym_cli.records.events import EventSink
from webgym_cli.records.sample import Sample
from webgym_cli.store.buffer import prefetch, read_or_report
from webgym_cli.store.run import RunDir

# Steps between two progress events.
PROGRESS_EVERY = 50
# The first page has a tenth more steps than wanted, plus this many, so that most samplings need no second page.
SPARE = 16


@dataclass(slots=True)
class SampleResult:
    """The samples, and the steps dropped while sampling."""

    dropped: dict[str, int]
    """Unusable steps by reason, zeros included."""
    samples: list[Sample] = field(default_factory=list)
    """In sampling order, the oldest iteration's first."""
    damaged: list[str] = field(default_factory=list)
    """Unreadable lines, each once."""


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
        self._drawn = SampleResult({drop.value: 0 for drop in list_content_reasons(settings)})

    def execute(self) -> SampleResult:
        """Sample until each share has reached its quota; unusable steps are replaced. Raises `StoreError`."""
        while missing := self._count_missing():
            for share, count in missing.items():
                batch = list(islice(self._queues[share], count))
                self._left[share] -= count - len(batch)  # empty unless another table has replaced this one
                for result in self._convert_batch(batch):
                    if isinstance(result, DropReason):
                        self._drawn.dropped[result.value] += 1
                        self._left[share] -= 1
                    else:
                        self._taken[share].append(result)
        self._drawn.samples = list(chain.from_iterable(self._taken.values()))
        return self._drawn

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
            trajectory = read_or_report(self._run, place, self._drawn.damaged, self._sink, without=self._unread)
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
