"""Sessions of the environment server: a client plays one episode after the other, action by action."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from webgym_cli.agent.forms.reasoning import add_empty_thought
from webgym_cli.agent.prompt import PolicyReply, Prompt
from webgym_cli.config.model import Settings
from webgym_cli.environments.base import Environment, EnvironmentPool, RawObservation
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Episode
from webgym_cli.records.trajectory import Generation, Outcome, Step, Trajectory
from webgym_cli.records.webrl import AnyAction
from webgym_cli.rollout.agents import Agent
from webgym_cli.rollout.episode import EpisodeRun
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.runner import LocalRunner
from webgym_cli.store.run import RunDir
from webgym_cli.util.temporary_folder import TemporaryFolder

_ENDED = "the session has ended, by its connection's end or its time limit: connect again"


@dataclass(frozen=True, slots=True)
class Turn:
    """What a client gets for a reset or an action."""

    instruction: str
    view: RawObservation | None = None
    """None when the episode is over."""
    action_error: str = ""
    """Why the last action was not carried out, or could not be read."""
    outcome: Outcome | None = None
    """Set when the episode is over; never with a failure, which is raised."""


class ClientSession(Agent):
    """One client, as the agent of its episodes. Each of them is a rollout's, with its limits, score and check."""

    name = "client"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._turns: asyncio.Queue[Turn | asyncio.Task[Trajectory | Exception | None]] = asyncio.Queue()
        self._replies: asyncio.Queue[str] = asyncio.Queue()
        self._runner: LocalRunner | None = None
        self._playing: asyncio.Task[Trajectory | Exception | None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._is_closed = False

    @property
    def is_playing(self) -> bool:
        """Whether an episode runs, with a browser context."""
        return self._playing is not None

    async def drop_episode(self) -> None:
        """Drop the running episode, as `stop`, once the client's call in flight has its answer."""
        async with self._one_at_a_time:
            await self.stop()

    async def reset(self, episode: Episode, pool: EnvironmentPool) -> Turn:
        """Start an episode; the running one is dropped. Raises `WebGymError`."""
        async with self._one_at_a_time:
            await self.stop()
            self._require_open()
            self._turns, self._replies = asyncio.Queue(), asyncio.Queue()
            folder = TemporaryFolder("session")  # for screenshots, until the episode is over
            run = RunDir(folder.path)
            self._runner = LocalRunner(run, self._settings, self, pool, make_episode=_ClientEpisode)
            self._playing = asyncio.create_task(_play(self._runner, PendingEpisode(episode, 0), folder))
            self._playing.add_done_callback(self._turns.put_nowait)
            return await self._next_turn()

    async def step(self, reply: str) -> Turn:
        """Act by a reply in the format of the action set. Raises `WebGymError`, a failure of the episode too."""
        async with self._one_at_a_time:
            self._require_open()
            if self._playing is None:
                raise UsageError("no episode is running: reset (over MCP start_task) starts one")
            self._replies.put_nowait(reply)
            return await self._next_turn()

    def close(self, on_closed: Callable[[], None]) -> None:
        """End the session for good, without waiting; `on_closed` is called when its browser context is closed."""
        self._is_closed = True
        if self._runner is None or self._playing is None:
            on_closed()
        else:
            self._runner.stop()  # not the task's `cancel`, which may interrupt the closing of the browser context
            self._playing.add_done_callback(lambda _: on_closed())

    async def stop(self) -> None:
        """Drop the running episode and wait until its browser context is closed."""
        if self._runner is not None and self._playing is not None:
            self._runner.stop()
            await asyncio.wait({self._playing})
            self._playing = None

    async def act(self, prompt: Prompt, environment: Environment) -> PolicyReply:
        """Wait for the client's next action."""
        text = add_empty_thought(await self._replies.get(), thinking=self._settings.policy_config.thinking)
        return PolicyReply(text=text, generation=Generation(finish_reason="stop"))

    def show(self, episode: EpisodeRun, view: RawObservation) -> None:
        """Hand the next observation to the client."""
        error = _describe_error(episode.steps[-1]) if episode.steps else ""
        self._turns.put_nowait(Turn(episode.instruction, view, error))

    def _require_open(self) -> None:
        if self._is_closed:
            raise UsageError(_ENDED)

    async def _next_turn(self) -> Turn:
        turn = await self._turns.get()
        if isinstance(turn, Turn):
            return turn
        self._playing, trajectory = None, turn.result()
        if isinstance(trajectory, Exception):
            raise trajectory
        if trajectory is None or trajectory.outcome.failure is FailureKind.CANCELLED:
            raise BoundaryError(FailureKind.CANCELLED, f"{FailureKind.CANCELLED}: {_ENDED}")
        outcome = trajectory.outcome
        if outcome.failure is not None:
            raise BoundaryError(outcome.failure, f"{outcome.failure}: {outcome.failure_detail}")
        error = _describe_error(trajectory.steps[-1]) if trajectory.steps else ""
        return Turn(trajectory.instruction, action_error=error, outcome=outcome)


class _ClientEpisode(EpisodeRun):
    """A running episode that shows each observation to its client."""

    async def _decide(self, view: RawObservation) -> tuple[AnyAction | None, Step]:
        if isinstance(self.agent, ClientSession):
            self.agent.show(self, view)
        return await super()._decide(view)


async def _play(runner: LocalRunner, owed: PendingEpisode, folder: TemporaryFolder) -> Trajectory | Exception | None:
    with folder:
        try:
            return await runner.run(owed)
        except (BoundaryError, ConnectionError) as error:
            return error  # raised, it would be logged if the client has left; any other error should be


def _describe_error(step: Step) -> str:
    return step.action_error or step.parse_detail or step.parse_error or ""
