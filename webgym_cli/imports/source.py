"""What a reader makes of another system's files, whatever its format: episodes, or why there is none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from webgym_cli.agent.action_forms import WebActions
from webgym_cli.agent.parse import ParseError, parse_web_action
from webgym_cli.agent.tools import render_web_action
from webgym_cli.agent.web_actions import BASIC
from webgym_cli.imports.arrays import Array
from webgym_cli.imports.pickle_stubs import PickleRefused, Stub
from webgym_cli.records.action import NOT_FEASIBLE, Action, ActionName, InteractionMode
from webgym_cli.records.failure import Stop, is_rolled_out
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.sample import Message
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Outcome, ParseErrorKind, PromptSpec
from webgym_cli.records.webrl import AnyAction

# Values of one nested field that are kept at most: shared parts of a pickle may be endless when written out.
MAX_NODES = 100_000
MAX_DEPTH = 50
MAX_NUMBER = 1 << 63


class SkipReason(StrEnum):
    """Why an episode of theirs is not imported."""

    KNOWN = "already_imported"
    """The run has it."""
    EMPTY = "empty"
    """It has no step and no task: nothing happened."""
    UNFINISHED = "unfinished"
    """It is still running, or was cut off before its result was written."""
    SCREENSHOT_MISSING = "screenshot_missing"
    """A step's picture is not there or can't be read: the episode would no longer be what the policy saw."""
    NOT_UNDERSTOOD = "not_understood"
    """It lacks what an episode needs, or has another form than the format's."""
    UNREADABLE = "unreadable_file"
    """The file is damaged, or was refused because it names what is not data."""


class NotUnderstood(ValueError):
    """An episode of theirs can't be represented; the message says why."""

    why: ClassVar[SkipReason] = SkipReason.NOT_UNDERSTOOD


class Unfinished(NotUnderstood):
    """An episode of theirs came to no end; the message says why."""

    why = SkipReason.UNFINISHED


@dataclass(frozen=True, slots=True)
class SkippedEpisode:
    """An episode, or a file, that is left out."""

    why: SkipReason
    where: str
    """The file, and the episode within it."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ImportedPrompt:
    """The messages that a step was sent."""

    messages: tuple[Message, ...]
    pictures: tuple[int, ...]
    """Of each placeholder in them, the step whose picture it is."""


@dataclass(frozen=True, slots=True)
class ImportedStep:
    """One step of theirs, its picture still where they left it."""

    response: str
    """What stands in the trajectory: see `parse_response`."""
    action: AnyAction | None
    parse_error: ParseErrorKind | None
    picture: Path | Array | None = None
    """None: an episode of text."""
    html: str = ""
    """The page as text, where the policy read it so."""
    url: str = ""
    title: str = ""
    prompt: str = ""
    """What was sent, as they kept it."""
    sent: ImportedPrompt | None = None
    """The same as messages, under which the response is trained; None: under our own prompt."""
    action_error: str | None = None
    page_changed: bool | None = None
    """None: to be seen from the pictures."""
    policy_seconds: float = 0.0
    environment_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ImportedEpisode:
    """One episode of theirs, in our words."""

    where: str
    """The file, and the episode within it."""
    digest: str
    """SHA-256 of its content: the same episode has it wherever it lies."""
    task: Task
    policy: str
    prompt: PromptSpec
    steps: tuple[ImportedStep, ...]
    outcome: Outcome
    started_at: str
    """ISO 8601, UTC."""
    split: Split = Split.TRAIN
    """Where it belongs unless told otherwise."""
    seed: int = 0
    seconds: float = 0.0
    verdict: Judgement | None = None
    """What their judge said; its trajectory's id is not known yet."""
    lost_steps: int = 0
    """Last steps that the policy did not answer."""


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """One system's files."""

    find: Callable[[Path], list[Path]]
    """Return the sources (files, or folders of one episode) under a path, in order; none where it is another's."""
    read: Callable[[Path, Path | None], Iterator[ImportedEpisode | SkippedEpisode]]
    """Yield the episodes of a source, given the folder of the pictures when it is another. Raises `UsageError`."""
    expects: str
    """What a path must hold, in words."""
    split: Split | None = None
    """Where its episodes go unless told otherwise; None: as their files say."""
    caution: str = ""
    """What everybody who imports it should know."""
    iteration_of: Callable[[Path], int | None] = lambda _: None
    """Return the iteration that a source is of; None: its files don't say."""


def read_episode(where: str, build: Callable[[], ImportedEpisode]) -> ImportedEpisode | SkippedEpisode:
    """Return the episode that `build` returns, or why it is left out where that raises a `ValueError`."""
    try:
        return build()
    except ValueError as error:
        why = error.why if isinstance(error, NotUnderstood) else SkipReason.NOT_UNDERSTOOD
        return SkippedEpisode(why, where, " ".join(str(error).split())[:500])


def parse_response(
    raw: str,
    mode: InteractionMode,
    *,
    thinking: bool = False,
    known_action: Action | None = None,
    as_it_is: bool = False,
    actions: WebActions = BASIC,
) -> ImportedStep:
    """Return a step of a response and of what our parser reads in it: the two never disagree.

    A response without any call of ours, of which the action is known by other means, gets the call at its end: so it
    says what was done in the words that a policy here is asked for. A call that is there stays as it is, well-formed
    or not; `as_it_is` keeps any response, where its own prompt asked for its form. Half a surrogate pair, which no
    file could hold, becomes a question mark.
    """
    # A lone surrogate is legal in a pickle and in JSON, and can not be written as UTF-8.
    text = raw.encode(errors="replace").decode()
    # A response with a call of ours keeps it, even a malformed one: that is what the policy said.
    if known_action is not None and "<tool_call>" not in text:
        if as_it_is:
            return ImportedStep(text, known_action, None)
        text = f"{text}\n{render_web_action(known_action, mode, actions)}".lstrip("\n")
    return make_step(text, parse_web_action(text, mode, thinking=thinking, actions=actions))


def make_step(response: str, read: AnyAction | ParseError, *, html: str = "") -> ImportedStep:
    """Return a step of a response and of what a parser reads in it."""
    if isinstance(read, ParseError):
        return ImportedStep(response, None, read.kind, html=html)
    return ImportedStep(response, read, None, html=html)


def with_stop(outcome: Outcome, steps: tuple[ImportedStep, ...], otherwise: Stop) -> Outcome:
    """Return the outcome of an episode with its stop and its answer; what broke came to no end of its own."""
    # What broke has no stop of its own; a judge that failed says nothing about how the episode ended.
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
    """Return a value of a pickle as JSON could hold it. Raises `NotUnderstood` when it is too large or too deep."""
    left = MAX_NODES

    def copy(part: Any, depth: int) -> Any:
        nonlocal left
        # Shared parts are counted each time that they are met: 60 nested pairs of references are 2**60 values.
        left -= 1
        if left < 0 or depth > MAX_DEPTH:
            raise NotUnderstood(f"a field of more than {MAX_NODES} values or {MAX_DEPTH} levels")
        if isinstance(part, str):
            return part.encode(errors="replace").decode()
        # Neither Parquet nor DuckDB has larger ones.
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
        if isinstance(part, Array):
            return _list_numbers(part)
        return f"<{type(part).__name__}>"

    return copy(value, 0)


def _list_numbers(array: Array) -> list[Any]:
    try:
        return array.numbers()
    except PickleRefused as error:
        raise NotUnderstood(str(error)) from None


def format_time(seconds: float) -> str:
    """Return a time in seconds since 1970 as ISO 8601, UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def to_text(value: Any) -> str:
    """Return a value that should be a text; empty when it is none."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def to_number(value: Any, default: float = 0.0) -> float:
    """Return a value that should be a finite number; the default when it is none."""
    # value != value: not a number.
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) > 1e15:
        return default
    return float(value)


def to_fields(value: Any, what: str) -> dict[str, Any]:
    """Return the attributes of a record of theirs, or the entries of a dict. Raises `NotUnderstood`."""
    if isinstance(value, Stub):
        return {**{str(key): item for key, item in value.items.items()}, **value.fields}
    if isinstance(value, dict):
        return value
    raise NotUnderstood(f"{what} is missing or of another form")
