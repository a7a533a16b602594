"""Filled runs for the tests of `prepare`."""

from __future__ import annotations

from typing import Any

from tests.records.made import store_images
from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.prepare.convert import Converter
from webgym_cli.prepare.execute import Draw, draw
from webgym_cli.prepare.plan import PreparePlan, survey
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import append
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


def fill(run: RunDir, *trajectories: Trajectory) -> None:
    """Store trajectories with their images."""
    for made in trajectories:
        store_images(run, made)
        append(run, made)


def drawn(run: RunDir, with_: Settings, read: list[int], convert: Any = None) -> tuple[PreparePlan, Draw]:
    """Return the plan over these iterations and what is drawn of it."""
    plan = survey(run, with_, max(read), read)
    converter = convert or Converter(with_, WordTokens(), ScreenshotStore(run.screenshots))  # type: ignore[arg-type]
    return plan, draw(plan, run, with_, converter, lambda event: None)
