"""What the driver and the ranks of a scaled-out rollout tell each other, as JSON.

Every message may be sent twice, and is then taken once: orders carry a number, and what a rank has to tell stays in its
outbox, counted, until the driver says how much of it was heard.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from webgym_cli import errors
from webgym_cli.config.model import Settings
from webgym_cli.errors import BoundaryError, WebGymError
from webgym_cli.records.base import Record
from webgym_cli.records.episode import Episode
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Generation, Trajectory
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.resources import PolicyEndpoint


class Ticket(Record):
    """An owed episode as it travels: the rank knows the rest from the plan's file."""

    episode: str
    attempt: int = Field(ge=0)
    failures: int = Field(default=0, ge=0)

    @classmethod
    def of(cls, owed: PendingEpisode) -> Ticket:
        """Return the ticket of an owed episode."""
        return cls(episode=owed.episode.id, attempt=owed.attempt, failures=owed.failures)

    def owed(self, episodes: dict[str, Episode]) -> PendingEpisode:
        """Return the owed episode, by the plan."""
        return PendingEpisode(episodes[self.episode], self.attempt, self.failures)


class Posting(Record):
    """What a rank needs to know before it begins."""

    rank: int = Field(ge=0)
    root: str
    """The run's directory: the same path on each node."""
    marker: str
    """A file in it that the driver has just written: who sees it shares the file system."""
    settings: Settings
    split: Split
    iteration: int
    policy: str
    given_up: int
    share: tuple[Ticket, ...]
    """The rank's share of what is owed, for its status; which episodes it gets is decided one by one."""
    acting: PolicyEndpoint
    environment: str


class Arrival(Record):
    """What a rank answers to its posting."""

    host: str
    pid: int
    version: str
    """Of webgym on that node."""
    python: str
    fault: Fault | None = None
    """Why it can't begin."""


class Fault(Record):
    """An error of ours, as it travels."""

    name: str
    message: str
    hint: str = ""

    @classmethod
    def of(cls, error: WebGymError) -> Fault:
        """Return an error in its travelling form."""
        name = WebGymError.__name__ if isinstance(error, BoundaryError) else type(error).__name__
        return cls(name=name, message=str(error), hint=error.hint)

    def error(self, where: str) -> WebGymError:
        """Return the error again, with the place in its message."""
        known = getattr(errors, self.name, WebGymError)
        raised: WebGymError = known(f"{where}: {self.message}", hint=self.hint)
        return raised


class Orders(Record):
    """What the driver tells a rank."""

    number: int = Field(ge=1)
    """Counts up; orders that came before are not followed again."""
    heard: int = Field(ge=0)
    """How many of the rank's items have arrived: it may forget them."""
    tickets: tuple[Ticket, ...] = ()
    """Episodes to run."""
    depth: int = 0
    """The rank's share of those that still wait."""
    over: bool = False
    """Nothing more will come."""
    cut: bool = False
    """What runs is to be cut: the completion threshold is reached."""


class Item(Record):
    """One thing that happened on a rank."""

    kind: Literal["stored", "judged", "returned", "finished", "event"]
    """A trajectory is on disk, or judged; an episode is to be tried again, or needs nothing more; another event."""
    trajectory: Trajectory | None = None
    """Without what only the file needs."""
    ticket: Ticket | None = None
    event: dict[str, Any] | None = None

    model_config = ConfigDict(populate_by_name=True)


class Report(Record):
    """What a rank answers to orders."""

    first: int = Field(ge=0)
    """The number of the first of `items`, counted from the rank's beginning."""
    items: tuple[Item, ...] = ()
    wanting: int = Field(default=0, ge=0)
    """Episodes that it could begin now."""
    status: dict[str, Any] | None = None
    """The newest snapshot of its monitor, where there is a new one."""
    ended: bool = False
    """It does nothing any more, and its browsers are closed."""
    judge_down: str = ""
    """Why it gave the judge up."""
    fault: Fault | None = None
    """Why it ended before its time."""


def lean(trajectory: Trajectory) -> Trajectory:
    """Return a stored trajectory without the bulk of its steps: what counting needs."""
    steps = tuple(
        step.model_copy(
            update={
                "response": "",
                "generation": Generation(),
                "observation": step.observation.model_copy(update={"elements": (), "notices": ()}),
            }
        )
        for step in trajectory.steps
    )
    return trajectory.model_copy(update={"steps": steps})


Arrival.model_rebuild()
