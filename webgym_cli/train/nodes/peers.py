"""The other nodes of a training as node 0 sees them: who is lost, who failed, and whose fault it was."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from webgym_cli.errors import JobError
from webgym_cli.train.nodes.status_files import NodeWord

POLL_SECONDS = 0.2
AGAIN = "webgym resume {run}, on every node: the training goes on from its last checkpoint"


class Listening(Protocol):
    """What is heard of one node."""

    changes: int
    """How often something new was heard."""

    def hear(self) -> NodeWord | None:
        """Return what it said last; None before its first word."""
        ...

    @property
    def silent(self) -> float:
        """Seconds since it said something new."""
        ...


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """What is wrong with another node's part."""

    weight: int
    """2: the node is lost; 1: its trainer failed; 0: its trainer only felt that another one was gone."""
    rank: int
    text: str


class Crew:
    """The other nodes of one training; as it stands, there are none."""

    def __init__(self, timeout: float = 0.0, hint: str = "") -> None:
        self.timeout = timeout
        """Seconds of silence after which a node counts as dead."""
        self.hint = hint
        """What to type when a node is at fault."""
        self.training = ""
        """Names this training."""
        self.ears: Mapping[int, Listening] = {}
        """By rank."""

    async def gather(self) -> dict[str, str]:
        """Have every node take part; return the variables by which node 0's own trainer finds them.

        Raises `JobError` that names the node which does not within `train.node_timeout` seconds.
        """
        return {}

    async def dismiss(self) -> None:
        """End the training: nodes that still work on it stop. Safe to repeat."""

    def trouble(self) -> JobError | None:
        """Return why the training can't go on, where another node is the reason."""
        faults = [fault for rank in self.ears if (fault := self.fault(rank))]
        return self.error(max(faults)) if faults else None

    async def blame(self, own: JobError, *, echo: bool) -> JobError:
        """Return why the training failed when node 0's trainer has; `echo`: it only felt that another one was gone.

        Waits for a sign of life of every node, so that one that is dead is not taken for well.
        """
        heard = {rank: ear.changes for rank, ear in self.ears.items()}
        while any(not self.fault(rank) and self.ears[rank].changes < heard[rank] + 2 for rank in heard):  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        worst = max((fault for rank in self.ears if (fault := self.fault(rank))), default=None)
        return self.error(worst) if worst and worst.weight > (0 if echo else 1) else own

    async def finish(self) -> None:
        """Wait until the other nodes have done their parts. Raises `JobError` where one has not."""
        while not all((word := self.word(rank)) and word.code == 0 for rank in self.ears):
            if trouble := self.trouble():
                raise trouble
            await asyncio.sleep(POLL_SECONDS)

    def word(self, rank: int) -> NodeWord | None:
        """Return what a node says of its part in this training; None while it has none."""
        word = self.ears[rank].hear()
        return word if word and word.training == self.training else None

    def fault(self, rank: int) -> Fault | None:
        """Return what is wrong with a node that had joined."""
        word = self.word(rank)
        if word is not None and word.code is not None:
            return Fault(0 if word.echo else 1, rank, f": {word.message}") if word.code else None
        if word is not None and word.gone:
            return Fault(2, rank, f" left the training: {word.gone}")
        if self.ears[rank].silent > self.timeout:
            return Fault(2, rank, f" {self.silence}")
        if word is None and self.ears[rank].changes:
            return Fault(2, rank, " was started again in the middle of the training")
        return None

    @property
    def silence(self) -> str:
        """How people are told that a node is dead."""
        return f"is not heard from for {self.timeout:g} s (train.node_timeout)"

    def name(self, rank: int) -> str:
        """How people are told of a node."""
        word = self.ears[rank].hear()
        return word.name if word else f"node {rank}"

    def error(self, fault: Fault) -> JobError:
        """Return a node's fault as the error of the training."""
        return JobError(f"{self.name(fault.rank)}{fault.text}", hint=self.hint)
