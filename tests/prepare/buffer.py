"""Filled runs for the tests of `prepare`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.records.builders import store_images
from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.prepare.sft.convert import Converter
from webgym_cli.prepare.sft.execute import StepSampler
from webgym_cli.prepare.sft.plan import PreparePlan, build_plan
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import append
from webgym_cli.store.index.query import open_index
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore


class WordTokens:
    """Counts words; an image takes as many tokens as it is wide."""

    def prompt_ids(self, messages: Any, sizes: Any) -> list[int]:
        words = sum(len(message.content.split()) for message in messages)
        return [0] * (words + sum(width for width, _ in sizes))

    def response_ids(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]


def settings(*overrides: str) -> Settings:
    """Return settings under which every solved trajectory of ours can be used."""
    return load(overrides=["algorithm_config.min_token_length=1", *overrides])


def fill(run: RunDir, *trajectories: Trajectory, rank: int = 0) -> None:
    """Store trajectories with their images."""
    for trajectory in trajectories:
        store_images(run, trajectory)
        append(run, trajectory, rank)


def converter(run: RunDir, with_: Settings) -> Converter:
    """Return a converter that counts words."""
    return Converter(with_, WordTokens(), ScreenshotStore(run.screenshots))  # type: ignore[arg-type]


@contextmanager
def planned(run: RunDir, with_: Settings, read: list[int]) -> Iterator[PreparePlan]:
    """Give the plan over these iterations, its index open."""
    with open_index(run) as index:
        yield build_plan(with_, index, max(read), read)


def drawn(run: RunDir, with_: Settings, read: list[int], convert: Any = None) -> tuple[PreparePlan, StepSampler]:
    """Return the plan over these iterations and what is drawn of it."""
    with planned(run, with_, read) as plan:
        drawing = StepSampler(plan, run, with_, convert or converter(run, with_), lambda event: None)
        return plan, drawing.execute()


def steps_of(draw: StepSampler) -> list[tuple[str, int]]:
    """Return the trajectory and step of each sample."""
    return [(sample.trajectory, sample.step) for sample in draw.samples]
