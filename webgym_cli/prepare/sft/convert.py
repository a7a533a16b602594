"""Samples of stored steps: exactly the sent prompt, limited in length for training; for exports whole episodes, too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from webgym_cli.agent.actions.action_sets import RenderFn, find_action_set
from webgym_cli.agent.forms.reasoning import CLOSE, OPEN
from webgym_cli.agent.forms.sanitize import sanitize_text
from webgym_cli.agent.prompt import Prompt, render_step
from webgym_cli.agent.prompts.prompt_template import HistoryWindow
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.prepare.sft.filters import DropReason, find_step_drop
from webgym_cli.records.sample import IMAGE, Message, Sample
from webgym_cli.records.trajectory import Screenshot, Step, Trajectory
from webgym_cli.store.screenshots import MissingImageError, ScreenshotStore
from webgym_cli.util.optional import known_or, when

# Tokens after a response: the stop token and the template's line end.
TEMPLATE_TAIL = 2
# Start of the reasoning in the templates of the Qwen families.
OPENING = f"{OPEN}\n"
# Size of the cache of verified images: neighbouring steps share most of them.
REMEMBERED = 1 << 16


class Converter:
    """Makes samples and counts those above the length limit."""

    def __init__(self, settings: Settings, tokens: ModelTokens, screenshots: ScreenshotStore) -> None:
        self._settings = settings
        self._tokens = tokens
        self._screenshots = screenshots
        self._whole = lru_cache(maxsize=REMEMBERED)(self._is_whole)
        self.over_long = 0
        """Steps with more than `cutoff_len` tokens as sent, including the response."""
        self.longest = 0
        """Length of the longest of them in tokens; 0 without any."""
        self.shortened = 0
        """Those of them that became samples with a smaller history window."""

    def convert(self, trajectory: Trajectory, index: int) -> Sample | DropReason:
        """Return the sample of a step, or why there is none."""
        reply = build_reply(trajectory, index)
        response = reply.content
        if sanitize_text(response) != response:
            return DropReason.RESPONSE_HAS_PLACEHOLDER
        ids = self._tokens.response_ids(response)
        if len(ids) < self._settings.algorithm_config.min_token_length:
            return DropReason.RESPONSE_TOO_SHORT
        if self._differs(trajectory, index, ids):
            return DropReason.RETOKENIZED
        fitted = self._fit(trajectory, index, len(ids) + TEMPLATE_TAIL)
        if isinstance(fitted, DropReason):
            return fitted
        prompt, length = fitted
        return build_sample(trajectory, index, (*prompt.messages, reply), prompt.images, tokens=length)

    def _differs(self, trajectory: Trajectory, index: int, ids: list[int]) -> bool:
        """Whether the sampled ids, without stop token, differ from the ids of the text."""
        sampled = trajectory.steps[index].generation.token_ids
        if sampled is None or not self._settings.algorithm_config.filter_retokenized:
            return False
        if trajectory.prompt.thinking and list(sampled[: len(self._opening)]) != self._opening:
            ids = ids[self._count_opened(trajectory, ids[: len(self._opening)]) :]  # the prompt opens the reasoning
        return list(sampled[: len(ids)]) != ids or len(sampled) > len(ids) + 1

    def _fit(self, trajectory: Trajectory, index: int, response: int) -> tuple[Prompt, int] | DropReason:
        """Return the prompt with as many earlier rounds as fit, and the sample's length in tokens."""
        spec, sent = trajectory.prompt, trajectory.steps[index].sent is not None
        whole = sent or find_action_set(spec).template is None
        window = when(not whole, min(spec.history_window, index))
        seen = {shot.sha256: shot for shot in trajectory.pictures}
        for smaller in range(window, -1, -1):
            prompt = render_step(trajectory, index, window=smaller)
            pictures = [seen[sha256] for sha256 in prompt.images]
            if (problem := self._image_problem(pictures)) is not None:
                return problem
            sizes = [(picture.width, picture.height) for picture in pictures]
            ids = self._tokens.prompt_ids(prompt.messages, sizes)
            length = len(ids) + response - self._count_opened(trajectory, ids)
            if length <= self._settings.algorithm_config.cutoff_len:
                self.shortened += smaller < window
                return prompt, length
            if smaller == window:
                self.over_long += 1
                self.longest = max(self.longest, length)
        return DropReason.TOO_LONG

    @cached_property
    def _opening(self) -> list[int]:
        return self._tokens.response_ids(OPENING)

    def _count_opened(self, trajectory: Trajectory, ids: list[int]) -> int:
        """Return the number of tokens with which the chat template opens the reasoning at the end of these ids."""
        size = len(self._opening)
        return size * bool(trajectory.prompt.thinking and size and ids[-size:] == self._opening)

    def _image_problem(self, pictures: list[Screenshot]) -> DropReason | None:
        limits = self._settings.image
        for picture in pictures:
            if not limits.image_min_pixels <= picture.width * picture.height <= limits.image_max_pixels:
                return DropReason.IMAGE_SIZE
            if not self._whole(picture.sha256):
                return DropReason.IMAGE_MISSING
        return None

    def _is_whole(self, sha256: str) -> bool:
        try:
            self._screenshots.get(sha256)
        except MissingImageError:
            return False
        return True


def build_sample(
    trajectory: Trajectory,
    index: int,
    messages: tuple[Message, ...],
    images: tuple[str, ...] = (),
    *,
    reward: float | None = None,
    tokens: int | None = None,
) -> Sample:
    """Return the sample of a step with these messages; `reward`: another one than the episode's."""
    return Sample(
        messages=messages,
        images=images,
        trajectory=trajectory.id,
        step=index,
        iteration=trajectory.iteration,
        reward=known_or(reward, trajectory.outcome.reward or 0.0),
        tokens=tokens,
    )


@dataclass(frozen=True, slots=True)
class Example:
    """A sample, with a rejected reply or label for preference training."""

    sample: Sample
    rejected: str | None = None
    """A rejected reply to the same prompt; the sample's own is preferred."""
    desirable: bool | None = None
    """Whether the sample's reply is desirable (KTO)."""
    trajectory: Trajectory | None = None
    """The whole trajectory, for formats of whole trajectories; the sample then has all its images."""
    prompt_ids: tuple[list[int], ...] = ()
    """Token ids of the prompt of each step, for formats with tokens."""

    @property
    def id(self) -> str:
        """Id of the trajectory and step of the reply."""
        return f"{self.sample.trajectory}/{self.sample.step}"


def build_step_sample(trajectory: Trajectory, index: int) -> Sample:
    """Return a step's prompt as it was sent, and its reply."""
    prompt = render_step(trajectory, index)
    return build_sample(trajectory, index, (*prompt.messages, build_reply(trajectory, index)), prompt.images)


def build_trajectory_sample(trajectory: Trajectory) -> Sample:
    """Return an episode with at least one step as one conversation.

    Each turn contains the new information with its screenshot, and each reply is complete with reasoning. That differs
    from the prompts as sent, which have a history window and no earlier reasoning. Conversations with tools are sent
    completely, so their last step is the sample, as with action sets that render their prompts in a form of their own.
    """
    actions = find_action_set(trajectory.prompt)
    if actions.render_episode is not None:
        return _sample_own_form(trajectory, actions.render_episode)
    if actions.template is None:
        return build_step_sample(trajectory, len(trajectory.steps) - 1)
    spec = trajectory.prompt.model_copy(update={"history_window": len(trajectory.steps), "max_images": None})
    template = actions.template
    messages = [Message(role="system", content=template.system(spec.interaction_mode))]
    for index, step in enumerate(trajectory.steps):
        past = trajectory.steps[:index]
        window = HistoryWindow(spec, trajectory.instruction, trajectory.task.start_url, past, step.observation)
        head = "" if index else template.head(window)
        messages.append(Message(role="user", content=IMAGE + head + template.turn(window, index)))
        messages.append(build_reply(trajectory, index))
    images = tuple(picture.sha256 for picture in trajectory.pictures)
    return build_sample(trajectory, len(trajectory.steps) - 1, tuple(messages), images)


def _sample_own_form(trajectory: Trajectory, render: RenderFn) -> Sample:
    """Return an episode as its action set renders it, with complete replies."""
    *past, last = trajectory.steps
    turns, images = render(trajectory.prompt, trajectory.instruction, past, last.observation)
    replies = (build_reply(trajectory, step.index) for step in past)
    messages = [next(replies, turn) if turn.role == "assistant" else turn for turn in turns]
    return build_sample(trajectory, last.index, (*messages, build_reply(trajectory, last.index)), images)


def build_reply(trajectory: Trajectory, index: int) -> Message:
    """Return a step's reply as training target, with an opening thinking tag."""
    text = trajectory.steps[index].response
    # The chat template may add the tag to the prompt, but the trainer's templates don't. The response needs it so that
    # the trained text equals the sent one.
    if trajectory.prompt.thinking and CLOSE in text and not text.lstrip().startswith(OPEN):
        text = f"{OPENING}{text}"
    return Message(role="assistant", content=text)


def find_step_problem(step: Step, settings: Settings, *, wanted: bool) -> DropReason | None:
    """Return why a step's reply is not exported, or None. A rejected reply need not be an action."""
    if wanted and (reason := find_step_drop(step, settings)) is not None:
        return reason
    return _unreadable(step)


def find_trajectory_problem(trajectory: Trajectory) -> DropReason | None:
    """Return why an episode is not exported as one conversation, or None."""
    if not trajectory.steps:
        return DropReason.EMPTY
    return next(filter(None, map(_unreadable, trajectory.steps)), None)


def _unreadable(step: Step) -> DropReason | None:
    if not step.response.strip():
        return DropReason.RESPONSE_TOO_SHORT
    return DropReason.RESPONSE_HAS_PLACEHOLDER if sanitize_text(step.response) != step.response else None
