"""Trajectory of one episode: steps, outcome, and prompt parameters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from webgym_cli.records.action import Action, ActionName, CustomAction
from webgym_cli.records.base import Moment, Record, StoredRecord
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.observation import Element as Element
from webgym_cli.records.observation import Observation as Observation
from webgym_cli.records.observation import PageState as PageState
from webgym_cli.records.observation import Screenshot as Screenshot
from webgym_cli.records.observation import ScrollExtent as ScrollExtent
from webgym_cli.records.observation import Tab as Tab
from webgym_cli.records.observation import ToolResult as ToolResult
from webgym_cli.records.prompt_version import InteractionMode, PromptName
from webgym_cli.records.prompt_version import PromptVersion as PromptVersion
from webgym_cli.records.sample import SentPrompt as SentPrompt
from webgym_cli.records.sampling import PolicyVersion, Sampling
from webgym_cli.records.task import Split, Task
from webgym_cli.records.usage import TokenUsage
from webgym_cli.records.webrl import AnyAction, WebRLOptions
from webgym_cli.util.json_values import list_leaves


class FinalState(Record):
    """What a check can see of an episode once its page is closed."""

    url: str = ""
    """Address of the last page; empty without one."""
    title: str = ""
    text: str | None = None
    """Visible text of the last page, up to 100,000 characters; None: there is no page, or it could not be read."""
    state: Any = None
    """JSON value that the reset of the site, or the set-up function, returned as `state`."""


# Minimum reward of a success, unless `rollout.success_threshold` is set.
SUCCESS_REWARD = 1.0
# Actions that are an answer, or an end in place of one.
ENDS = (ActionName.ANSWER, ActionName.TERMINATE)
# Actions keep so many characters of an answer at least.
_ANSWER_HEAD = 1000


class ParseErrorKind(StrEnum):
    """Why a response contains no valid action. Responses are never repaired by guessing."""

    NO_TOOL_CALL = "no_tool_call"
    SEVERAL_TOOL_CALLS = "several_tool_calls"
    INVALID_JSON = "invalid_json"
    UNKNOWN_FUNCTION = "unknown_function"
    UNKNOWN_ACTION = "unknown_action"
    INVALID_ARGUMENTS = "invalid_arguments"
    TRUNCATED = "truncated"


class Generation(Record):
    """What the policy server returned with one response."""

    prompt_tokens: int | None = None
    """Length of the prompt in tokens, images included."""
    cached_tokens: int = 0
    """Tokens of the prompt that the server had cached, as far as it says so."""
    completion_tokens: int = 0
    """Length of the response in tokens, as the server counted it; 0 in older runs."""
    prompt_token_digest: str | None = None
    """SHA-256 of the prompt's token ids (comma-separated decimals), if the server returned them."""
    token_ids: tuple[int, ...] | None = None
    """Token ids of the response, including the stop token, if the server returned them."""
    logprobs: tuple[Annotated[float, Field(allow_inf_nan=True)], ...] | None = None
    """Natural log-probability of each of `token_ids`; the trajectory's `sampling` names the distribution."""
    finish_reason: str | None = None
    other_model: str | None = None
    """Name of the model that the server says it used, if it is not the requested one."""
    policy_version: PolicyVersion | None = None
    """The weights that produced the response; None: an expert, or a server that webgym did not start."""


class Step(Record):
    """One step: observation, response and action."""

    index: int = Field(ge=0)
    observation: Observation
    response: str
    """The policy's raw text."""
    action: AnyAction | None = None
    parse_error: ParseErrorKind | None = None
    """Set exactly when `action` is None."""
    parse_detail: str = ""
    """Details of the parse error, as in the next prompt."""
    action_error: str | None = None
    """Why the environment refused a well-formed action (unknown element, forbidden URL, ...)."""
    page_changed: bool | None = None
    """Whether the next screenshot differs; None for the last step, and without screenshots."""
    prompt_digest: str
    """SHA-256 of the messages that were sent (JSON, images by their SHA-256)."""
    generation: Generation = Generation.model_construct()
    sent: SentPrompt | None = None
    """The prompt of an imported step or of another agent, under which it is trained; None: rendered from the previous
    steps."""
    policy_seconds: float = 0.0
    """Time of the policy request."""
    environment_seconds: float = 0.0
    """Time for the action and the observation after it."""


class Score(Record):
    """Score of a trajectory from one source."""

    source: Literal["environment", "judge", "orm", "function", "check"]
    value: float
    """The source's own value, a finite number."""
    detail: str = ""
    extras: dict[str, float] = Field(default_factory=dict)
    """Additional numbers returned by a reward function or a check, by name."""
    digest: str = ""
    """SHA-256 of the file that defines the check; empty for other sources."""


class Outcome(Record):
    """Outcome of an episode. With a `failure` there is no reward, and the trajectory is never trained on."""

    reward: float | None = None
    """Any finite number; None until it is known, and always None with a failure."""
    success_threshold: float = SUCCESS_REWARD
    """The smallest reward of a success."""
    stop: Stop | None = None
    failure: FailureKind | None = None
    failure_detail: str = ""
    answer: str | None = None
    scores: tuple[Score, ...] = ()

    @model_validator(mode="after")
    def _failed_without_reward(self) -> Outcome:
        if self.failure and self.reward is not None:
            raise ValueError(f"a failure ({self.failure}) has no reward, got {self.reward}")
        return self

    @classmethod
    def of_other_system(
        cls, reward: float | None, answer: str | None, detail: str, threshold: float = SUCCESS_REWARD
    ) -> Outcome:
        """Return the outcome of an episode that another system ran; without a reward it awaits a judge."""
        scores = () if reward is None else (Score(source="environment", value=reward, detail=detail),)
        return cls(
            reward=reward, success_threshold=threshold, stop=Stop.of_answer(answer), answer=answer, scores=scores
        )

    @property
    def extras(self) -> dict[str, float]:
        """Additional numbers of all reward sources, by name."""
        return dict(chain.from_iterable(score.extras.items() for score in self.scores))

    @property
    def success(self) -> bool | None:
        """Whether the task was solved; None if unknown."""
        return None if self.failure or self.reward is None else self.reward >= self.success_threshold


class PromptSpec(Record):
    """All prompt parameters other than the steps."""

    version: PromptName = PromptVersion.VANILLA
    interaction_mode: InteractionMode = InteractionMode.COORDINATES
    history_window: int = Field(default=4, ge=0)
    """Number of earlier rounds that are sent in full."""
    max_images: int | None = Field(default=None, ge=1)
    """Maximum number of screenshots (the newest ones); None: one per round of the window."""
    thinking: bool = False
    """Whether the model is a thinking model; its thoughts are removed from the history."""
    tools: tuple[dict[str, Any], ...] | None = None
    """JSON schemas of the available tools; None: not a conversation with tools."""
    call_format: str = "hermes"
    """How the tools are described and called."""
    system_prompt: str = ""
    """The text before the tools; empty: webgym's own text."""
    dialogs: bool = False
    """Whether the policy answers dialogs, which stay open until then."""
    more_actions: bool = False
    """Whether the set has the actions of `context_config.more_actions`, too."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the action set's own, JSON values by name; those of `webrl` are `records.webrl.WebRLOptions`."""

    @model_validator(mode="before")
    @classmethod
    def _move_options(cls, value: Any) -> Any:
        """Read the options of `webrl` where older runs have them, beside the others."""
        own = {"explained", "lenient", "max_characters"}
        if not isinstance(value, dict) or not own & value.keys():
            return value
        values = dict(value)
        if values.get("tools") is None:  # else the text before the tools has this name
            own.add("system_prompt")
        old = WebRLOptions.model_validate({name: values.pop(name) for name in own & values.keys()})
        return values | {"options": old.model_dump(exclude_defaults=True)}


class Trajectory(StoredRecord):
    """One episode, one line of the store (`schema` 1)."""

    id: str
    """`<split>-<iteration>-<episode>`, with `.<attempt>` from the second attempt on."""
    episode: str
    """Id of the planned episode."""
    split: Split
    iteration: int = Field(ge=0)
    attempt: int = Field(default=0, ge=0)
    task: Task
    instruction: str
    """The instruction that the policy received: the task's, or the one that the environment generated."""
    seed: int
    policy: str
    """The policy: `oracle`, the checkpoint or base model, or `MODEL at ADDRESS` of servers that are not webgym's."""
    prompt: PromptSpec
    sampling: Sampling | None = None
    """The sampling parameters; None: an expert acted, or they are unknown."""
    steps: tuple[Step, ...] = ()
    outcome: Outcome
    final: FinalState | None = None
    """The state after the last action, of an episode whose task has a check."""
    other_tokens: TokenUsage = TokenUsage.model_construct()
    """Tokens of the policy's answers that are no steps: of a gateway's helpers, and those that the agent did not
    take."""
    started_at: Moment
    """ISO 8601, UTC."""
    seconds: float = 0.0
    """Wall time of the episode."""
    cpu_seconds: float = 0.0
    """Processor time of webgym, browsers and servers since the episode before was stored; 0 in older runs."""
    gpu_seconds: float = 0.0
    """The same time on the wall, times the GPUs of webgym's own policy servers."""

    @property
    def case(self) -> object:
        """What counts once in a success rate: of the test split a task and seed, whose repeats are no other trials."""
        return (self.task.key, self.seed) if self.split is Split.TEST else self.id

    @property
    def awaits_judgement(self) -> bool:
        """Whether the episode did not fail but its reward is still unknown."""
        return self.outcome.failure is None and self.outcome.reward is None

    @property
    def answering(self) -> Step | None:
        """The last step if it is the answer and no action on the page; None too for answers given beside the steps."""
        if self.outcome.stop is not Stop.ANSWERED or not self.steps:
            return None
        action = self.steps[-1].action
        is_answer = action is None or action.name in ENDS or _carries(action, self.outcome.answer or "")
        return self.steps[-1] if is_answer else None

    @property
    def tokens(self) -> TokenUsage:
        """Tokens of all answers of the policy."""
        return self.other_tokens + count_tokens(self.steps)

    @property
    def pictures(self) -> Iterator[Screenshot]:
        """The pictures of all observations, in order."""
        return chain.from_iterable(step.observation.pictures for step in self.steps)

    def count_calls(self) -> Counter[str]:
        """Return the number of the policy's calls of each tool."""
        actions = (step.action for step in self.steps if isinstance(step.action, Action))
        return Counter(call.name for call in chain.from_iterable(action.calls or () for action in actions))


def _carries(action: AnyAction, answer: str) -> bool:
    """Return whether an action of another system, or a call of its tools, which has any name, contains an answer."""
    calls = (action.calls or ()) if isinstance(action, Action) else ()
    given = [action.arguments] if isinstance(action, CustomAction) else [call.arguments for call in calls]
    texts = (" ".join(leaf.split()) for leaf in list_leaves(given) if isinstance(leaf, str))
    head = " ".join(answer.split())[:_ANSWER_HEAD]
    pattern = re.compile(rf"(?<!\w){re.escape(head)}(?!\w)")
    return bool(head) and any(map(pattern.search, texts))


def count_tokens(steps: Iterable[Step]) -> TokenUsage:
    """Return the policy's tokens of some steps."""
    generations = [step.generation for step in steps]
    return TokenUsage(
        prompt=sum(one.prompt_tokens or 0 for one in generations),
        cached=sum(one.cached_tokens for one in generations),
        completion=sum(one.completion_tokens or len(one.token_ids or ()) for one in generations),
    )
