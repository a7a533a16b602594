"""Episodes of an agent's command (`rollout.agent`): a process an episode, whose model is the gateway's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from webgym_cli.environments.base import AgentAccess
from webgym_cli.environments.browser.executable import find_chromium
from webgym_cli.errors import BoundaryError
from webgym_cli.gateway.recorder import Recorder
from webgym_cli.gateway.server import GatewayServer
from webgym_cli.gateway.sessions import Session
from webgym_cli.jobs.process import Job, last_lines
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.trajectory import Outcome, PromptSpec
from webgym_cli.rollout.episode import EpisodeRun
from webgym_cli.rollout.stage_timer import EpisodeStage
from webgym_cli.util.files import open_regular, write_json
from webgym_cli.util.secrets import environ_without_keys
from webgym_cli.util.temporary_folder import TemporaryFolder
from webgym_cli.util.text import replace_surrogates

# Seconds that an agent has to end after its episode's time limit.
_GRACE = 5.0
# Exit statuses from here on are of a signal: what killed the agent was not an answer.
_KILLED = 128
_MAX_ANSWER = 100_000
_STATE, _ANSWER = "storage_state.json", "answer.txt"


@dataclass(slots=True)
class CommandEpisode(EpisodeRun):
    """A running episode of a command. Plan, deadline, retries and storage are those of any rollout."""

    argv: Sequence[str] = field(kw_only=True)
    """The command."""
    recorder: Recorder = field(kw_only=True)
    server: GatewayServer = field(kw_only=True)
    """The gateway that the agent calls."""
    logs: Path = field(kw_only=True)
    """Folder of the agents' output, one file an episode."""
    _session: Session | None = None

    @property
    def spec(self) -> PromptSpec:
        """Prompt parameters: the agent's own prompts are stored with the steps."""
        if self._session is None:
            return PromptSpec(tools=())
        return self.recorder.build_spec(self._session)

    async def _play(self) -> Outcome:
        with self._stage(EpisodeStage.RESET):
            access = await self.environment.open_to_agent(self.task, self.owed.episode.seed)
        self.instruction, self.task = access.instruction, self.environment.resolve_task(self.task)
        episode = self.owed.episode.model_copy(update={"id": self.owed.trajectory_id, "task": self.task})
        session, key = self.recorder.admit(episode)
        self._session, session.around_call = session, self._time_call
        log = self.logs / f"{episode.id}.log"
        with TemporaryFolder("agent") as folder, self._stage(EpisodeStage.AGENT):
            environment = self._make_environment(access, key, folder)
            try:
                code = await Job.run(self.argv, env=environment, log=log, grace=_GRACE)
                gave_up = 0 < code < _KILLED and session.ends_unusable
            finally:
                self.recorder.dismiss(session)
                self.steps, self.other_tokens = list(session.steps()), session.other_tokens
            answer = _read_answer(folder / _ANSWER)
        access.require_reached(access.start_url)  # an answer without the site is no result
        if session.exhausted:
            return self._outcome(Stop.STEP_LIMIT, await self.environment.out_of_steps())
        # Many agents catch the error of their last call and end well, with any answer.
        if session.error is not None and session.error.kind is not FailureKind.POLICY_REFUSED:
            raise session.error
        if gave_up:  # the policy's own fault: as a failure it would be sampled again until it goes well
            return self._outcome(Stop.STUCK, await self.environment.out_of_steps())
        if code and session.error is not None:
            raise session.error
        if code or not self.steps:
            what = f"exited with {code}" if code else "made no call of the policy"
            last = " ".join(last_lines(log, 1))[:300] or "no output"
            cause = session.refusal and f"; its last call was refused: {session.refusal}"
            raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"the agent {what}: {last} ({log.name}){cause}")
        score = await self.environment.answer(answer or "")
        return self._outcome(Stop.of_answer(answer), score, answer)

    def _make_environment(self, access: AgentAccess, key: str, folder: Path) -> dict[str, str]:
        """Return the environment variables of the agent's process. `folder`: for its files, only this user's."""
        write_json(folder / _STATE, access.storage_state)
        return {
            **environ_without_keys(),
            "AGENT_TASK": access.instruction,
            "AGENT_START_URL": access.start_url,
            "AGENT_BROWSER": str(find_chromium(self.settings.browser)),
            "AGENT_PROXY": access.proxy,
            "AGENT_STORAGE_STATE": str(folder / _STATE),
            "AGENT_ANSWER_FILE": str(folder / _ANSWER),
            "OPENAI_BASE_URL": self.server.base_url,
            "OPENAI_API_KEY": key,
            "OPENAI_MODEL": self.settings.serve.served_model_name,
        }

    @asynccontextmanager
    async def _time_call(self) -> AsyncIterator[None]:
        """Wait for the policy, and time and count a call."""
        await self._wait_for_policy()
        with self._stage(EpisodeStage.POLICY):
            yield
        episode, calls = self.owed.episode, len(self._session.calls) if self._session else 0
        self.timer.record_step(episode.id, calls + 1, episode.max_steps, self.task.start_url)


def _read_answer(file: Path) -> str | None:
    """Return the agent's answer; None without one. Raises `BoundaryError` for a file that can't be read."""
    try:
        with open_regular(file) as opened:
            return replace_surrogates(opened.read(_MAX_ANSWER).decode("utf-8-sig", errors="replace")).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"the agent's answer: {error.strerror}") from error
