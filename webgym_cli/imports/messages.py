"""Episodes in chat form: OpenAI's messages with images, one JSON object an episode, its reward beside."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from pydantic import ConfigDict, Field

from webgym_cli.agent.actions.action_sets import CALL_FORMATS
from webgym_cli.imports.chat import ChatMessage, ChatPart, ChatTool, Reward, convert_messages, convert_reply, read_reply
from webgym_cli.imports.files import (
    UnreadableImage,
    decode_data_url,
    find_lines,
    find_picture,
    is_file,
    read_json_lines,
    read_object,
)
from webgym_cli.imports.source import (
    Conversation,
    ImportedEpisode,
    ImportedStep,
    ImportFormat,
    NotUnderstood,
    Picture,
    SkippedEpisode,
    compute_digest,
    format_time,
    make_step,
    read_episode,
)
from webgym_cli.records.action import CustomAction
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.records.task import Task
from webgym_cli.records.tool import MAX_DEPTH, measure_depth
from webgym_cli.records.trajectory import Outcome, ParseErrorKind, PromptSpec
from webgym_cli.util.files import digest_content

_NAME = "messages.json"
_DIGEST = "sha256:"
_ENVIRONMENT = "web"


class ChatEpisode(ChatPart):
    """One episode. Unknown fields are refused: a misspelt reward would be lost silently."""

    model_config = ConfigDict(extra="forbid")

    messages: list[ChatMessage] = Field(min_length=2)
    tools: tuple[ChatTool, ...] = ()
    parallel_tool_calls: bool = True
    """Of OpenAI's lines for fine-tuning; not used."""
    reward: Reward | None = None
    """None: it awaits a judge."""
    failure: str = ""
    """Why the episode is no result of the policy; it then has no reward."""
    answer: str | None = None
    id: str = ""
    """Name of the task; empty: the digest of its instruction."""
    task: str = ""
    """Instruction; empty: the text of the first message of the user."""
    start_url: str = ""
    model: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Stored with the task."""


@dataclass(frozen=True, slots=True)
class ChatRecord:
    """The fields of a `ChatEpisode`, not validated."""

    value: Any
    images: Mapping[str, bytes] = field(default_factory=dict)
    """Content of images that are within the file, by their name in the messages."""
    pages: Sequence[tuple[str, str]] = ()
    """URL and text of the page of each step; empty: nothing is known."""
    score: float | None = None
    """Score of the other system's environment, which leaves the reward to a judge."""
    actions: Sequence[CustomAction | None] = ()
    """Action of each reply, or None for a reply without one; empty: they are read from the replies."""


# The episodes of a source: their place, and a function that reads one and raises `ValueError`, `LookupError` or
# `TypeError` if it is not as expected.
ReadRecords = Callable[[Path], Iterator[tuple[str, Callable[[], ChatRecord]]]]


def make_chat_format(
    find: Callable[[Path], list[Path]], records: ReadRecords, expects: str, **options: Any
) -> ImportFormat:
    """Return an import format whose episodes are in chat form. `records`: yields those of a source."""

    def read(source: Path, images: Path | None, prompt: PromptSpec) -> Iterator[ImportedEpisode | SkippedEpisode]:
        folder = images or (source if source.is_dir() else source.parent)
        written = format_time(source.stat().st_mtime)
        for where, load in records(source):
            yield read_episode(where, partial(build_episode, where, load, folder, prompt, written))

    def for_policy(prompt: PromptSpec) -> ImportFormat:
        return replace(form, read=partial(read, prompt=prompt))

    form = ImportFormat(find, partial(read, prompt=PromptSpec()), expects, for_policy=for_policy, **options)
    return form


def build_episode(
    where: str, load: Callable[[], ChatRecord], folder: Path, prompt: PromptSpec, written: str
) -> ImportedEpisode:
    """Convert an episode, for a policy with this prompt. Raises as `load`."""
    record = load()
    if not isinstance(record.value, dict):
        raise NotUnderstood("no JSON object")
    if measure_depth(record.value) > 2 * MAX_DEPTH:  # can't be stored, which would end the whole file
        raise NotUnderstood("nested too deeply")
    episode = ChatEpisode.model_validate(record.value)
    texts = [message.reply for message in episode.messages if message.role == "assistant"]
    spec = PromptSpec(
        tools=tuple(tool.model_dump() for tool in episode.tools),
        call_format=prompt.call_format,
        history_window=prompt.history_window,
        max_images=prompt.max_images,
        thinking=any("</think>" in text for text in texts),
    )
    images = _Images(record.images, folder)
    steps = tuple(_read_steps(episode.messages, spec, images))
    if record.pages:
        pairs = zip(steps, record.pages, strict=True)
        steps = tuple(replace(step, url=url, html=text) for step, (url, text) in pairs)
    if record.actions:
        acts = zip(steps, record.actions, strict=True)
        steps = tuple(
            replace(step, action=act, parse_error=None if act else ParseErrorKind.NO_TOOL_CALL) for step, act in acts
        )
    task = _build_task(episode)
    content = [[step.response, [message.model_dump() for message in step.sent.messages]] for step in steps if step.sent]
    identity = [task.key, content, images.digests, episode.reward, episode.failure]
    if record.pages:
        identity.append(episode.model)  # people labelled several agents, which may have done the same
    return ImportedEpisode(
        where=where,
        digest=compute_digest(*identity),
        task=task,
        policy=episode.model or "messages",
        prompt=spec,
        steps=steps,
        outcome=_build_outcome(episode, record.score),
        started_at=written,
    )


def make_text_part(text: str) -> dict[str, Any]:
    """Return a text as a part of a message."""
    return {"type": "text", "text": text}


def make_image_part(url: str) -> dict[str, Any]:
    """Return an image as a part of a message."""
    return {"type": "image_url", "image_url": {"url": url}}


def _read_steps(messages: Sequence[ChatMessage], spec: PromptSpec, images: _Images) -> Iterator[ImportedStep]:
    """Yield a step for each message of the assistant, with the messages before it as its prompt."""
    call_format, most = CALL_FORMATS.find(spec.call_format), spec.max_images or spec.history_window + 1
    seen: set[Picture] = set()
    replies = [number for number, message in enumerate(messages) if message.role == "assistant" and message.weight != 0]
    if not replies:
        raise NotUnderstood("no message of the assistant")
    for number in replies:
        sent = convert_messages(messages[:number], spec.tools or (), call_format, images.__getitem__)
        pictures = sent.images[-most:]
        text = convert_reply(messages[number], call_format)
        # Replies with and without reasoning stand side by side in files of others.
        read = read_reply(text, spec.model_copy(update={"thinking": "</think>" in text}))
        new = [picture for picture in dict.fromkeys(pictures[:-1]) if picture not in seen and picture != pictures[-1]]
        seen.update(pictures)
        yield replace(
            make_step(text, read),
            picture=next(reversed(pictures), None),
            more_pictures=tuple(new),
            sent=Conversation(_drop_images(sent.messages, len(sent.images) - len(pictures)), pictures),
        )


def _drop_images(messages: Sequence[Message], count: int) -> tuple[Message, ...]:
    """Return messages without the placeholders of their first images: the policy is never sent more than its limit."""
    kept: list[Message] = []
    for message in messages:
        here = min(count, message.content.count(IMAGE))
        count -= here
        kept.append(Message(role=message.role, content=message.content.replace(IMAGE, "", here)))
    return tuple(kept)


def _build_task(episode: ChatEpisode) -> Task:
    texts: list[str] = next((message.texts for message in episode.messages if message.role == "user"), [])
    instruction = episode.task or "\n".join(texts)
    name = episode.id or compute_digest(instruction)[:16]
    facts = {"start_url": episode.start_url, "environment": _ENVIRONMENT, "extra": episode.metadata}
    return Task.model_validate({"id": name, "instruction": instruction.strip(), **facts})


def _build_outcome(episode: ChatEpisode, score: float | None) -> Outcome:
    if episode.failure:
        return Outcome(failure=FailureKind.ENVIRONMENT_ERROR, failure_detail=episode.failure)
    given = episode.reward if score is None else score
    outcome = Outcome.of_other_system(given, episode.answer, "the reward in the file")
    return outcome if score is None else outcome.model_copy(update={"reward": None})


class _Images(dict[str, Picture]):
    """Images of an episode by their URL: a file, a `data:` URL, `sha256:` and a digest, or a name within the file.

    One that is not there yet is looked for; raises `NotUnderstood`.
    """

    def __init__(self, inside: Mapping[str, bytes], folder: Path) -> None:
        super().__init__()
        self._inside, self._folder = inside, folder

    @property
    def digests(self) -> list[str]:
        """What identifies the images, independent of their location: contents, and names of those that are missing."""
        return [_identify(one) for one in self.values()]

    def __missing__(self, url: str) -> Picture:
        self[url] = self._find(url)
        return self[url]

    def _find(self, url: str) -> Picture:
        if url in self._inside:
            return self._inside[url]
        if url.startswith("data:"):
            return decode_data_url(url)
        if url.startswith(_DIGEST):
            digest = PurePosixPath(url.removeprefix(_DIGEST)).name
            # As files, or as in the store of a run.
            names = [f"{folder}{digest}{end}" for folder, end in product(("", f"{digest[:2]}/"), (".png", ".webp"))]
            files = [self._folder / name for name in names]
            file = next(filter(is_file, files), files[0])
            # A WebP is named by the PNG that it was made from.
            if file.suffix == ".png" and is_file(file) and digest_content(file) != digest:
                raise UnreadableImage(f"{file}: its content has another digest than its name")
            return file
        if "://" in url and not url.startswith("file://"):
            raise NotUnderstood(f"the image {url[:100]!r} is on another host, and is never fetched")
        if url.startswith("file://"):
            url = unquote(url.removeprefix("file://"))
        return find_picture(url, (self._folder,))


def _identify(picture: Picture) -> str:
    if isinstance(picture, bytes):
        return hashlib.sha256(picture).hexdigest()
    return digest_content(picture) if is_file(picture) else picture.name


def _find(path: Path) -> list[Path]:
    if path.is_file() and path.name == _NAME:
        return [path]
    lines = find_lines(path, lambda value: isinstance(value, dict) and "messages" in value)
    return sorted([*path.rglob(_NAME), *lines])


def _read_records(source: Path) -> Iterator[tuple[str, Callable[[], ChatRecord]]]:
    if source.name == _NAME:
        yield str(source), partial(_read_folder, source)
        return
    yield from ((where, partial(ChatRecord, value)) for where, value in read_json_lines(source))


def _read_folder(source: Path) -> ChatRecord:
    value, beside = read_object(source), source.parent / "reward.json"
    if isinstance(value, list):
        value = {"messages": value} | ({"reward": read_object(beside)} if beside.is_file() else {})
    return ChatRecord(value)


MESSAGES = make_chat_format(
    _find,
    _read_records,
    "a .jsonl or .json of objects with `messages`, or a folder of *.jsonl or messages.json",
    suffixes=(".jsonl",),
)
