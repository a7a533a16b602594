"""Node 0's side of a training over several nodes that share the run's folder."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, WebGymError
from webgym_cli.jobs.signals import Terminated
from webgym_cli.records.events import EventSink
from webgym_cli.store.files import read_json, write_json
from webgym_cli.store.run import RunDir
from webgym_cli.train.nodes import Ear, HeadWord, Launch, NodeWord, Voice, head_file, launch_file, node_file
from webgym_cli.train.place import Place, place_of
from webgym_cli.train.plan import TrainPlan

POLL_SECONDS = 0.2
_AGAIN = "webgym resume {run}, on every node: the training goes on from its last checkpoint"


@contextmanager
def heading(run: RunDir, settings: Settings, words: str, environ: Mapping[str, str] | None = None) -> Iterator[None]:
    """Let the other nodes know of this command while the block runs, and how it ended; nothing for a node alone."""
    place = place_of(os.environ if environ is None else environ)
    if place is None:
        yield
        return
    launch_file(run).unlink(missing_ok=True)  # of one that was killed
    word = HeadWord(command=uuid4().hex, host=socket.gethostname(), pid=os.getpid(), words=words, nodes=place.count)
    voice = Voice(head_file(run), word, settings.train.node_timeout)
    code, message = 1, "it failed"
    try:
        yield
        code, message = 0, ""
    except WebGymError as error:
        code, message = error.exit_code, str(error)
        raise
    except KeyboardInterrupt:
        code, message = 130, "interrupted"
        raise
    except Terminated:
        code, message = 143, "terminated"
        raise
    finally:
        voice.close(code=code, message=message)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """What is wrong with another node's part."""

    weight: int
    """2: the node is lost; 1: its trainer failed; 0: its trainer only felt that another one was gone."""
    rank: int
    text: str


@dataclass(slots=True)
class SharedCrew:
    """The other nodes of one training: each runs the same command and joins by what stands in the run's folder."""

    plan: TrainPlan
    run: RunDir
    settings: Settings
    place: Place
    logs: Path
    sink: EventSink
    _launch: Launch | None = None
    _ears: dict[int, Ear[NodeWord]] = field(default_factory=dict)

    async def gather(self) -> dict[str, str]:
        """Announce the training, wait until every node takes part, and return what our own trainer's environment needs.

        Raises `JobError` that names the node which does not within `train.node_timeout` seconds.
        """
        self._ears = {rank: Ear(node_file(self.run, rank), NodeWord) for rank in range(1, self.place.count)}
        launch = self._launch = self._announced()
        write_json(launch_file(self.run), launch.model_dump(mode="json"))
        self._note(f"waits for {self.place.count - 1} more; rendezvous at {launch.address}:{launch.port}")
        deadline = time.monotonic() + self.settings.train.node_timeout
        while missing := [rank for rank in self._ears if self._word(rank) is None]:
            if faults := [fault for rank in self._ears if self._word(rank) and (fault := self._fault(rank))]:
                raise self._error(max(faults))
            if time.monotonic() > deadline:
                raise self._error(Fault(2, missing[0], f" has not joined the training: {self._why(missing[0])}"))
            await asyncio.sleep(POLL_SECONDS)
        self._note(f"trains with {', '.join(map(self._name, self._ears))}")
        return launch.rendezvous(0)

    def trouble(self) -> JobError | None:
        """Return why the training can't go on, where another node is the reason."""
        faults = [fault for rank in self._ears if (fault := self._fault(rank))]
        return self._error(max(faults)) if faults else None

    async def blame(self, own: JobError, *, echo: bool) -> JobError:
        """Return why the training failed when our own trainer has: what befell another node, where that was the cause.

        Waits for a sign of life of every node, so that one that is dead is not taken for well.
        """
        heard = {rank: ear.changes for rank, ear in self._ears.items()}
        while any(not self._fault(rank) and self._ears[rank].changes < heard[rank] + 2 for rank in heard):  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        worst = max((fault for rank in self._ears if (fault := self._fault(rank))), default=None)
        return self._error(worst) if worst and worst.weight > (0 if echo else 1) else own

    async def finish(self) -> None:
        """Wait until the other nodes have done their parts. Raises `JobError` where one has not."""
        while not all(self._done(rank) for rank in self._ears):
            if trouble := self.trouble():
                raise trouble
            await asyncio.sleep(POLL_SECONDS)

    def dismiss(self) -> None:
        """End the training: nodes that still work on it stop."""
        launch_file(self.run).unlink(missing_ok=True)

    def _announced(self) -> Launch:
        plan, head = self.plan, HeadWord.model_validate(read_json(head_file(self.run)))
        return Launch(
            command=head.command,
            training=uuid4().hex,
            folder=str(plan.folder),
            arguments=plan.argv[1:],
            env=plan.env,
            processes=plan.training.world_size // self.place.count,
            nodes=self.place.count,
            address=self.place.master,
            port=self.place.port or free_port(),
            logs=str(self.logs),
        )

    def _word(self, rank: int) -> NodeWord | None:
        """Return what a node says of its part in this training; None while it has none."""
        word = self._ears[rank].hear()
        return word if word and self._launch and word.training == self._launch.training else None

    def _done(self, rank: int) -> bool:
        word = self._word(rank)
        return word is not None and word.code == 0

    def _fault(self, rank: int) -> Fault | None:
        """Return what is wrong with a node that had joined."""
        word, ear, timeout = self._word(rank), self._ears[rank], self.settings.train.node_timeout
        if word is not None and word.code is not None:
            return Fault(0 if word.echo else 1, rank, f": {word.message}") if word.code else None
        if word is not None and word.gone:
            return Fault(2, rank, f" left the training: {word.gone}")
        if ear.silent > timeout:
            return Fault(2, rank, f" is not heard from for {timeout:g} s (train.node_timeout)")
        if word is None:
            return Fault(2, rank, " was started again in the middle of the training")
        return None

    def _why(self, rank: int) -> str:
        """Return what is known of a node that did not join."""
        ear, timeout = self._ears[rank], self.settings.train.node_timeout
        word = ear.hear()
        if word is None:
            return f"it is not heard from for {timeout:g} s (train.node_timeout)"
        return word.gone or word.message or f"it was not ready after {timeout:g} s (train.node_timeout)"

    def _name(self, rank: int) -> str:
        word = self._ears[rank].hear() or self._ears[rank].stale
        return word.name if word else f"node {rank}"

    def _error(self, fault: Fault) -> JobError:
        return JobError(f"{self._name(fault.rank)}{fault.text}", hint=_AGAIN.format(run=self.run.root))

    def _note(self, what: str) -> None:
        self.sink({"event": "node", "rank": 0, "message": f"node 0 {what}"})


def free_port() -> int:
    """Return a port that is free on this machine."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])
