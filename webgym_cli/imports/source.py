"""Common types and helpers of the import formats: imported episodes and steps, and reasons to skip episodes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from webgym_cli.agent.actions.parse import ParseError, parse_web_action
from webgym_cli.agent.forms.action_forms import WebActions
from webgym_cli.agent.forms.tools import render_web_action
from webgym_cli.agent.forms.web_actions import BASIC
from webgym_cli.imports.pickle_stubs import Stub
from webgym_cli.records.action import NOT_FEASIBLE, Action, ActionName, InteractionMode
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.failure import Stop, is_rolled_out
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.sample import Message
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Outcome, ParseErrorKind, PromptSpec, Trajectory
from webgym_cli.records.webrl import AnyAction
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.util.text import replace_surrogates

# Maximum number of values in one nested field: shared parts of a pickle may expand exponentially.
MAX_NODES = 100_000
MAX_DEPTH = 50
MAX_NUMBER = 1 << 63

# An image: its file, or its content.
Picture = Path | bytes
# An image, as its reader has it.
Image = TypeVar("Image")


class SkipReason(StrEnum):
    """Why an episode is not imported."""

    KNOWN = "already_imported"
    """The run already has it."""
    EMPTY = "empty"
    """It has neither a step nor a task."""
    UNFINISHED = "unfinished"
    """It is still running, or was killed before its result was written."""
    SCREENSHOT_MISSING = "screenshot_missing"
    """A step's screenshot is missing or unreadable: the episode would differ from what the policy observed."""
    NOT_UNDERSTOOD = "not_understood"
    """It lacks required data or does not follow the format."""
    UNREADABLE = "unreadable_file"
    """The file is damaged, or was refused because it names objects that are not data."""


class NotUnderstood(ValueError):
    """An episode can't be represented in webgym; the message has the reason."""

    why: ClassVar[SkipReason] = SkipReason.NOT_UNDERSTOOD


class Unfinished(NotUnderstood):
    """An episode did not end; the message has the reason."""

    why = SkipReason.UNFINISHED


@dataclass(frozen=True, slots=True)
class SkippedEpisode:
    """An episode or a file that is not imported."""

    why: SkipReason
    where: str
    """The file, and the episode within it."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Conversation(Generic[Image]):
    """Plain messages, and their images in the order of the placeholders."""

    messages: tuple[Message, ...]
    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True)
class ImportedStep:
    """One step of another system, with a reference to its screenshot in that system's files."""

    response: str
    """Response for the trajectory; see `parse_response`."""
    action: AnyAction | None
    parse_error: ParseErrorKind | None
    picture: Picture | None = None
    """None: a text-only episode."""
    more_pictures: tuple[Picture, ...] = ()
    """Other images that are new in its prompt."""
    html: str = ""
    """The page as text, if that was the policy's observation."""
    url: str = ""
    title: str = ""
    prompt: str = ""
    """The prompt as the other system stored it."""
    sent: Conversation[Picture] | None = None
    """The prompt as messages, with which the response is trained; None: it is trained with webgym's own prompt."""
    page_changed: bool | None = None
    """None: derived from the screenshots."""
    policy_seconds: float = 0.0
    environment_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ImportedEpisode:
    """One episode of another system, converted."""

    where: str
    """The file, and the episode within it."""
    digest: str
    """SHA-256 of its content, independent of its location."""
    task: Task
    policy: str
    prompt: PromptSpec
    steps: tuple[ImportedStep, ...]
    outcome: Outcome
    started_at: str
    """ISO 8601, UTC."""
    split: Split = Split.TRAIN
    """Default split."""
    seed: int = 0
    seconds: float = 0.0
    verdict: Judgement | None = None
    """Judgement of the other system; its trajectory id is not set yet."""
    lost_steps: int = 0
    """Number of steps without a response of the policy, which are left out."""


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """One episode of another run of webgym, as it is stored there."""

    where: str
    """The run, and the episode within it."""
    digest: str
    """SHA-256 of what an import does not change."""
    trajectory: Trajectory
    judgements: tuple[Judgement, ...]
    """All of its judgements, oldest first."""
    screenshots: ScreenshotStore
    """The store of its pictures."""


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """File format of one system. Plugins call `IMPORT_FORMATS.register("name", ImportFormat(find, read, "..."))`."""

    find: Callable[[Path], list[Path]]
    """Returns the sources (files, or folders of one episode) under a path, in order; empty for another format."""
    read: Callable[[Path, Path | None], Iterator[ImportedEpisode | StoredEpisode | SkippedEpisode]]
    """Yields the episodes of a source; the second argument: the folder of its images, if not its own. `UsageError`."""
    expects: str
    """Description of the expected files, for error messages."""
    split: Split | None = None
    """Default split of its episodes; None: taken from their files."""
    caution: str = ""
    """Note for users who import it."""
    text: bool | None = False
    """Whether its pages are texts, which the run's action set then has to show. None: that is known of each episode."""
    action_sets: Sequence[str] = ()
    """The action sets in whose language its responses are; empty: that is known of each episode."""
    prompt_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of these sets with which its responses were parsed."""
    iteration_of: Callable[[Path], int | None] = lambda _: None
    """Returns the iteration of a source; None: the files don't record it."""
    for_policy: Callable[[PromptSpec], ImportFormat] | None = None
    """Returns this format for the run's policy, given by its prompt; None: the same."""
    suffixes: tuple[str, ...] = ()
    """Endings of single files that `auto` takes for this format first."""
    otherwise: str = ""
    """Name of the format that reads a path under which this one finds nothing."""
    select: Callable[[Path, str], ImportFormat] | None = None
    """Returns this format for the episodes of a source that match an SQL condition (`--where`). None: it takes none."""


def read_episode(where: str, build: Callable[[], ImportedEpisode]) -> ImportedEpisode | SkippedEpisode:
    """Return the result of `build`, or a `SkippedEpisode` with the reason if its record is not as expected."""
    try:
        return build()
    except ValueError as error:
        why = error.why if isinstance(error, NotUnderstood) else SkipReason.NOT_UNDERSTOOD
        return SkippedEpisode(why, where, " ".join(describe_invalid(error).split())[:500])
    except (LookupError, TypeError) as error:
        return SkippedEpisode(SkipReason.NOT_UNDERSTOOD, where, f"{type(error).__name__}: {error}"[:500])


def parse_response(
    raw: str,
    mode: InteractionMode,
    *,
    thinking: bool = False,
    known_action: Action | None = None,
    as_it_is: bool = False,
    actions: WebActions = BASIC,
) -> ImportedStep:
    """Make a step from a response and the action that webgym's parser reads in it, so that both always agree.

    If a response has no tool call but its action is known, the call is appended, so that the response has the format
    that webgym's prompts request. An existing call, well-formed or not, stays unchanged. `as_it_is`: keep any response
    unchanged, because the imported prompt requested its format. Unpaired surrogates become question marks.
    """
    # An unpaired surrogate is legal in pickles and JSON, but can't be encoded as UTF-8.
    text = replace_surrogates(raw)
    # Even a malformed call stays: it is the policy's output.
    if known_action is not None and "<tool_call>" not in text:
        if as_it_is:
            return ImportedStep(text, known_action, None)
        text = f"{text}\n{render_web_action(known_action, mode, actions)}".lstrip("\n")
    return make_step(text, parse_web_action(text, mode, thinking=thinking, actions=actions))


def make_step(response: str, read: AnyAction | ParseError, *, html: str = "") -> ImportedStep:
    """Make a step from a response and its parser's result."""
    if isinstance(read, ParseError):
        return ImportedStep(response, None, read.kind, html=html)
    return ImportedStep(response, read, None, html=html)


def with_stop(outcome: Outcome, steps: tuple[ImportedStep, ...], otherwise: Stop) -> Outcome:
    """Return an outcome with stop reason and answer; `otherwise`: the stop reason without an answer."""
    # A failed rollout has no stop reason; a failed judge leaves that of the episode unaffected.
    if not is_rolled_out(outcome.failure):
        return outcome
    last = steps[-1].action if steps else None
    if isinstance(last, Action) and last.name is ActionName.ANSWER:
        return outcome.model_copy(update={"stop": Stop.ANSWERED, "answer": last.text})
    if last and last.name is ActionName.TERMINATE:
        return outcome.model_copy(update={"stop": Stop.ANSWERED, "answer": NOT_FEASIBLE})
    return outcome.model_copy(update={"stop": otherwise})


def compute_digest(*content: Any) -> str:
    """Return the SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode(errors="replace")).hexdigest()


def to_plain(value: Any) -> Any:
    """Convert a pickled value to JSON types. Raises `NotUnderstood` if it is too large or too deep."""
    left = MAX_NODES

    def copy(part: Any, depth: int) -> Any:
        nonlocal left
        # Shared parts are counted at each occurrence: 60 nested pairs of references are 2**60 values.
        left -= 1
        if left < 0 or depth > MAX_DEPTH:
            raise NotUnderstood(f"a field of more than {MAX_NODES} values or {MAX_DEPTH} levels")
        if isinstance(part, str):
            return replace_surrogates(part)
        # Parquet and DuckDB have no larger integers.
        if isinstance(part, int) and abs(part) >= MAX_NUMBER:
            raise NotUnderstood("a number of more than 63 bits")
        if part is None or isinstance(part, bool | int | float):
            return part
        if isinstance(part, list | tuple):
            return [copy(item, depth + 1) for item in part]
        if isinstance(part, dict):
            return {str(key): copy(item, depth + 1) for key, item in part.items()}
        if isinstance(part, Stub):
            return {**copy(part.items, depth + 1), **copy(part.fields, depth + 1)}
        return f"<{type(part).__name__}>"

    return copy(value, 0)


def format_time(seconds: float) -> str:
    """Format a Unix time in seconds as ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def to_text(value: Any) -> str:
    """Return a value that should be a text; empty if it is not."""
    return replace_surrogates(value) if isinstance(value, str) else ""


def to_number(value: Any, default: float = 0.0) -> float:
    """Return a value that should be a finite number; the default if it is not."""
    # value != value: NaN.
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) > 1e15:
        return default
    return float(value)


def to_fields(value: Any, what: str) -> dict[str, Any]:
    """Return the attributes and entries of a stub, or the entries of a dict. Raises `NotUnderstood`."""
    if isinstance(value, Stub):
        return {**{str(key): item for key, item in value.items.items()}, **value.fields}
    if isinstance(value, dict):
        return value
    raise NotUnderstood(f"{what} is missing or of another form")
