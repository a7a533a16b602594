"""Node 0's side of a training over several nodes; whole for those that share the run's folder."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from webgym_cli.config.model import Settings
from webgym_cli.errors import Terminated, WebGymError
from webgym_cli.records.events import EventSink
from webgym_cli.store.run import RunDir
from webgym_cli.train.nodes.peers import AGAIN, POLL_SECONDS, Crew, Fault
from webgym_cli.train.nodes.status_files import (
    Ear,
    HeadWord,
    Launch,
    NodeWord,
    Voice,
    head_file,
    launch_file,
    node_file,
)
from webgym_cli.train.nodes.topology import Place, place_of
from webgym_cli.train.training_plan import TrainPlan
from webgym_cli.util.files import read_json, write_json


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


class LedCrew(Crew):
    """The other nodes of a training that this one leads, however they come to take part."""

    again: ClassVar[str] = AGAIN
    """What to type when a node is at fault, with `{run}`."""

    def __init__(
        self, plan: TrainPlan, run: RunDir, settings: Settings, place: Place, logs: Path, sink: EventSink
    ) -> None:
        super().__init__(settings.train.node_timeout, self.again.format(run=run.root))
        self._plan = plan
        self._run = run
        self._settings = settings
        self._place = place
        self._logs = logs
        self._sink = sink

    def _launch(self, command: str, address: str) -> Launch:
        """Return this training as the other nodes join it, at a rendezvous of this address."""
        plan, self.training = self._plan, uuid4().hex
        return Launch(
            command=command,
            training=self.training,
            folder=str(plan.folder),
            algorithm=plan.algorithm,
            launch_file=plan.launch_file,
            env=plan.env,
            processes=plan.training.world_size // self._place.count,
            nodes=self._place.count,
            address=address,
            port=self._place.port or _free_port(),
            logs=str(self._logs),
        )

    def _say(self, message: str) -> None:
        self._sink({"event": "node", "rank": 0, "message": message})


class SharedCrew(LedCrew):
    """Nodes that share the run's folder: each runs the same command and joins by what stands there."""

    async def gather(self) -> dict[str, str]:
        """Announce the training and wait until every node takes part."""
        self.ears = {rank: Ear(node_file(self._run, rank), NodeWord) for rank in range(1, self._place.count)}
        launch = self._announce()
        deadline = time.monotonic() + self.timeout
        while missing := [rank for rank in self.ears if self.word(rank) is None]:
            if faults := [fault for rank in self.ears if self.word(rank) and (fault := self.fault(rank))]:
                raise self.error(max(faults))
            if time.monotonic() > deadline:
                raise self.error(Fault(2, missing[0], f" has not joined the training: {self._why(missing[0])}"))
            await asyncio.sleep(POLL_SECONDS)
        self._say(f"node 0 trains with {', '.join(map(self.name, self.ears))}")
        return launch.rendezvous(0)

    async def dismiss(self) -> None:
        """Take the announcement back."""
        launch_file(self._run).unlink(missing_ok=True)

    def _announce(self) -> Launch:
        head = HeadWord.model_validate(read_json(head_file(self._run)))
        launch = self._launch(head.command, self._place.master)
        write_json(launch_file(self._run), launch.model_dump(mode="json"))
        self._say(f"node 0 waits for {self._place.count - 1} more; rendezvous at {launch.address}:{launch.port}")
        return launch

    def _why(self, rank: int) -> str:
        """Return what is known of a node that did not join."""
        word = self.ears[rank].hear()
        if word is None:
            return f"it {self.silence}"
        return word.gone or word.message or f"it was not ready after {self.timeout:g} s (train.node_timeout)"


def _free_port() -> int:
    """Return a port that is free on this machine."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])
