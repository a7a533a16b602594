"""Agent loop of one episode in a fresh environment; its steps are kept even if it fails."""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from webgym_cli.agent.actions.action_sets import ACTION_SETS, find_action_set
from webgym_cli.agent.actions.parse import ParseError
from webgym_cli.agent.client.gate import PolicyGate
from webgym_cli.agent.prompt import PolicyReply, Prompt, render, reveal_prompt
from webgym_cli.config.limits import MAX_TOOL_CALLS
from webgym_cli.config.model import Settings
from webgym_cli.environments.base import Environment, EnvironmentStep, RawObservation
from webgym_cli.environments.registry import find_environment
from webgym_cli.errors import BoundaryError, WebGymError
from webgym_cli.records.action import NOT_FEASIBLE, ActionName
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Observation, Outcome, PromptSpec, Score, Step, ToolResult, Trajectory
from webgym_cli.records.usage import TokenUsage
from webgym_cli.records.webrl import AnyAction
from webgym_cli.rollout.agents import Agent, build_step
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.stage_timer import EpisodeStage, StageTimer
from webgym_cli.store.run import now
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.util.text import replace_surrogates
from webgym_cli.util.user_code import find_first, find_place, require_type

# Maximum characters of the reason why an action was refused, or why an episode failed unexpectedly.
_REASON_LIMIT = 1000
# Maximum characters of a page's text, address or title.
_LONGEST_TEXT = 100_000
# Failures of a page, which an outage of this machine's network causes, too.
_MAYBE_NETWORK = {"navigation_failed", "start_page_failed", "page_timeout", "episode_timeout"}


def derive_sampling_seed(seed: int, name: str, step: int) -> int:
    """Return the sampling seed of one response, deterministic in run seed, name of the attempt and step."""
    # 48 bits: exact in any JSON parser, and collisions within a run are rare
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}/{step}".encode()).digest()[:6])


def build_prompt_spec(settings: Settings, tools: tuple[dict[str, Any], ...] | None) -> PromptSpec:
    """Return the prompt parameters of an environment's episodes. `tools`: None if it has pages."""
    context, agent = settings.context_config, settings.agent
    if tools is not None:
        options: dict[str, Any] = {"tools": tools, **agent.model_dump(include={"call_format", "system_prompt"})}
    else:
        own = ACTION_SETS.find(str(context.prompt_version)).prompt_options(settings)
        dialogs = settings.browser.dialogs == "policy"
        options = {"dialogs": dialogs, "more_actions": context.more_actions, "options": own}
    return PromptSpec(
        version=context.prompt_version,
        interaction_mode=context.interaction_mode,
        history_window=context.history_window,
        max_images=context.max_images,
        thinking=bool(settings.policy_config.thinking),
        **options,
    )


def describe_exception(error: BaseException) -> Outcome:
    """Return the outcome of an episode that an unexpected exception ended."""
    detail = f"{type(error).__name__}: {error}"[:_REASON_LIMIT].removesuffix(": ")
    return Outcome(failure=FailureKind.INTERNAL_ERROR, failure_detail=f"{detail} ({find_place(find_first(error))[0]})")


@dataclass(slots=True)
class EpisodeRun:
    """A running episode: observe, prompt, act, until the task ends or the step limit is reached."""

    owed: PendingEpisode
    agent: Agent
    environment: Environment
    screenshots: ScreenshotStore
    settings: Settings
    timer: StageTimer
    gate: PolicyGate = field(default_factory=PolicyGate)
    """Holds the episode during a weight update of the policy."""
    instruction: str = ""
    steps: list[Step] = field(default_factory=list)
    other_tokens: TokenUsage = field(default_factory=TokenUsage)
    task: Task = field(init=False)
    """The planned task, as the environment resolves it on reset."""
    started_at: str = field(default_factory=now)
    _start: float = field(default_factory=time.monotonic)
    _deadline: asyncio.Timeout | None = None

    def __post_init__(self) -> None:
        """Set the task, and the environment's episode."""
        self.task = self.owed.episode.task
        self.environment.episode = self.owed.trajectory_id

    @property
    def spec(self) -> PromptSpec:
        """Prompt parameters, stored with the trajectory so that its prompts can be rendered again."""
        return build_prompt_spec(self.settings, self.environment.tools)

    async def run(self) -> Trajectory:
        """Run the episode and return its trajectory; an infrastructure failure is its outcome, not an exception.

        An unexpected exception fails only this episode. Raises `StoreError` and `UsageError`, which concern the whole
        run. Propagates cancellation; the caller then gets the steps so far from `trajectory`.
        """
        try:
            async with asyncio.timeout(self.settings.rollout.episode_timeout) as self._deadline:
                outcome = await self._play()
        except BoundaryError as error:
            if error.kind is FailureKind.JUDGE_FAILED:  # of its own reward: `webgym judge` asks other questions
                error.kind = FailureKind.ENVIRONMENT_UNAVAILABLE
            outcome = Outcome(failure=error.kind, failure_detail=str(error))
        except ValidationError as error:  # for example a score of NaN from a plugin's environment
            detail = f"the environment's value can't be stored: {describe_invalid(error)}"
            outcome = Outcome(failure=FailureKind.ENVIRONMENT_ERROR, failure_detail=detail)
        except TimeoutError as error:
            limit = self.settings.rollout.episode_timeout
            late = Outcome(failure=FailureKind.EPISODE_TIMEOUT, failure_detail=f"longer than {limit:g} s")
            outcome = late if self._deadline and self._deadline.expired() else describe_exception(error)
        except WebGymError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  it must not end the other episodes
            outcome = describe_exception(error)
        # An environment of a plug-in need not derive from `Environment`, whose defaults it then lacks.
        find_outage = getattr(self.environment, "find_outage", str)
        if outcome.failure in _MAYBE_NETWORK and (outage := find_outage()):
            detail = f"{outcome.failure_detail} ({outage})"
            outcome = Outcome(failure=FailureKind.NETWORK_UNAVAILABLE, failure_detail=detail)
        return self.trajectory(outcome)

    def trajectory(self, outcome: Outcome) -> Trajectory:
        """Return the record of the episode with the steps so far."""
        episode, attempt = self.owed.episode, self.owed.attempt
        return Trajectory(
            id=self.owed.trajectory_id,
            episode=episode.id,
            split=episode.split,
            iteration=episode.iteration,
            attempt=attempt,
            task=self.task,
            instruction=self.instruction or episode.task.instruction,
            seed=episode.seed,
            policy=self.agent.name,
            prompt=self.spec,
            sampling=self.agent.sampling(greedy=episode.greedy),
            steps=tuple(self.steps),
            other_tokens=self.other_tokens,
            outcome=outcome.to_storable(),
            started_at=self.started_at,
            seconds=round(time.monotonic() - self._start, 3),
        )

    async def _play(self) -> Outcome:
        episode = self.owed.episode
        with self._stage(EpisodeStage.RESET):
            try:
                first = await self.environment.reset(episode.task, episode.seed)
                instruction, view = require_type(first, tuple, "reset")
                require_type(view, RawObservation, "reset, as the second value,")
            except BoundaryError as error:
                if error.kind is FailureKind.ENVIRONMENT_ERROR:
                    error.kind = FailureKind.ENVIRONMENT_UNAVAILABLE
                raise
        self.instruction = replace_surrogates(instruction or episode.task.instruction)
        self.task = self.environment.resolve_task(episode.task)
        for number in range(1, episode.max_steps + 1):
            action, step = await self._decide(view)
            self.timer.record_step(episode.id, number, episode.max_steps, view.url)
            if action is None:
                self._append_step(step, view, view, 0.0)
                view = replace(view, results=())
            elif action.name in (ActionName.ANSWER, ActionName.TERMINATE):
                self._append_step(step, view, None, 0.0)
                answer = NOT_FEASIBLE if action.name is ActionName.TERMINATE else action.text
                score = await self.environment.answer(answer or "")
                return self._outcome(Stop.ANSWERED, score, answer)
            else:
                result = await self._act(action, step, view)
                if result.done or result.view is None:
                    return self._outcome(Stop.TERMINATED, result.score, result.answer)
                view = result.view
            if self._is_stuck():
                return self._outcome(Stop.STUCK, await self.environment.out_of_steps())
        return self._outcome(Stop.STEP_LIMIT, await self.environment.out_of_steps())

    async def _act(self, action: AnyAction, step: Step, view: RawObservation) -> EnvironmentStep:
        start = time.monotonic()
        try:
            with self._stage(EpisodeStage.ACT):
                result = require_type(await self.environment.step(action), EnvironmentStep, "step")
        except BaseException:  # the policy's answer was made and paid for
            self._append_step(step, view, None, time.monotonic() - start)
            raise
        step = step.model_copy(update={"action_error": result.action_error and result.action_error[:_REASON_LIMIT]})
        self._append_step(step, view, result.view, time.monotonic() - start)
        return result

    def _is_stuck(self) -> bool:
        """Whether the last steps reach `max_parse_errors`, or `max_repeated_actions` with the same action."""
        limits = self.settings.rollout
        last = self.steps[-1].action
        limit = limits.max_parse_errors if last is None else limits.max_repeated_actions
        return limit is not None and [step.action for step in self.steps[-limit:]] == [last] * limit

    async def _decide(self, view: RawObservation) -> tuple[AnyAction | None, Step]:
        """Store the observation, query the agent, parse its response; the action is None on a parse error."""
        with self._stage(EpisodeStage.OBSERVE):
            # A page's text, a tool's result and the task may be long: other episodes must not wait for their rendering.
            observation, prompt = await asyncio.to_thread(self._make_prompt, view)
        await self._wait_for_policy()
        start = time.monotonic()
        with self._stage(EpisodeStage.POLICY):
            reply = await self.agent.act(reveal_prompt(prompt, self.task), self.environment)
        seconds = time.monotonic() - start
        self.environment.responses = [*(step.response for step in self.steps), reply.text]
        # Likewise a foreign server's reply; and a plugin's parser may be slow.
        parsed = await asyncio.to_thread(self._parse, reply)
        step = build_step(len(self.steps), observation, prompt, reply, parsed, seconds)
        return step.action, step

    async def _wait_for_policy(self) -> None:
        """Wait during a weight update of the policy; the episode timeout is paused."""
        if self.gate.is_open or self._deadline is None or self._deadline.expired():
            return
        loop = asyncio.get_running_loop()
        due, began = self._deadline.when(), loop.time()
        self._deadline.reschedule(None)
        with self._stage(EpisodeStage.HELD):
            await self.gate.wait_open()
        if due is not None:
            self._deadline.reschedule(due + loop.time() - began)

    def _make_prompt(self, view: RawObservation) -> tuple[Observation, Prompt]:
        """Store an observation and return it with its prompt."""
        observation, episode = self._store_observation(view), self.owed.episode
        prompt = render(self.spec, self.instruction, self.task.start_url, self.steps, observation)
        seed = derive_sampling_seed(self.settings.seed, self.owed.sampling_name, len(self.steps))
        return observation, replace(prompt, episode=episode.id, greedy=episode.greedy, seed=seed)

    def _store_observation(self, view: RawObservation) -> Observation:
        """Store the images of a raw observation and return its record."""
        results = []
        for result in view.results:
            image = self.screenshots.put(result.image) if result.image else None
            results.append(ToolResult(name=result.name, text=result.text, image=image, error=result.error))
        observation = Observation(
            url=view.url,
            title=view.title,
            screenshot=self.screenshots.put(view.png) if view.png else None,
            elements=view.elements,
            notices=view.notices,
            results=tuple(results),
            html=view.html,
            tabs=view.tabs,
            tree=view.tree,
            state=view.state,
        ).to_storable(_LONGEST_TEXT)
        return observation.model_copy(update={"digest": observation.compute_digest()})

    def _parse(self, reply: PolicyReply) -> AnyAction | ParseError:
        truncated = reply.generation.finish_reason == "length"
        return find_action_set(self.spec).parse(reply.text, self.spec, truncated=truncated, max_calls=MAX_TOOL_CALLS)

    def _append_step(self, step: Step, before: RawObservation, after: RawObservation | None, seconds: float) -> None:
        changed = None if after is None or not after.png else after.png != before.png
        facts = {"page_changed": changed, "environment_seconds": round(seconds, 4)}
        self.steps.append(step.model_copy(update=facts).to_storable())

    def _stage(self, stage: EpisodeStage) -> AbstractContextManager[None]:
        return self.timer.time(self.owed.episode.id, stage)

    def _outcome(self, stop: Stop, score: Score | None, answer: str | None = None) -> Outcome:
        """Return the outcome of an episode without failure; its reward is None if a judge or reward model provides it.

        An episode that is stuck or out of steps gets a reward of 0, unless it is judged or its environment allows a
        reward model to score unfinished episodes.
        """
        spec = find_environment(self.task.environment)
        open_ended = stop not in (Stop.STEP_LIMIT, Stop.STUCK) or spec.scores_unfinished
        if spec.is_judged(self.settings) or (score is None and open_ended):
            return Outcome(stop=stop, answer=answer, scores=tuple(filter(None, [score])))
        # Without a score of its own `webgym judge` took the episode for one that awaits a verdict.
        score = score or Score(source="environment", value=0.0, detail=f"ended by {stop}")
        threshold = self.settings.rollout.success_threshold
        return Outcome(reward=score.value, success_threshold=threshold, stop=stop, answer=answer, scores=(score,))
