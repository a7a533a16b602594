"""Counts and renders tokens as the policy's server does: its tokenizer, its chat template, its image sizes.

Light on purpose: the `tokenizers` library and the model's own small files, no torch. The real processors are the
reference in the tests.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.agent.prompt import split_at_images
from webgym_cli.agent.webrl_prompt import is_raw
from webgym_cli.config.model_families import DATE
from webgym_cli.errors import SettingsError
from webgym_cli.records.sample import IMAGE, Message

if TYPE_CHECKING:
    import jinja2
    from tokenizers import Tokenizer

# What is read of a model.
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "preprocessor_config.json",
    "processor_config.json",
)
# Pieces of text whose ids are remembered.
_REMEMBERED = 4096
# What Llama's chat templates write before the system message, within its turn.
_DATE_BLOCK = re.compile(r"Cutting Knowledge Date: .*\nToday Date: .*\n\n$")
_FRAME = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>")
# What stands between special tokens when it is tried whether they can be cut apart.
_PROBES = ("", "user\n", " led by a space", "Ends in one ", "\n\n", "e\u0301 and 12,345.67", "\u4f60\u597d")
# Stands for the system message when it is looked for what precedes it.
_MARK = "the system message"
# The token that stands for one merged patch of an image, in the Qwen-VL families.
IMAGE_PAD = "<|image_pad|>"


@dataclass(frozen=True, slots=True)
class ImageGrid:
    """How the model's processor sizes an image."""

    factor: int
    """Pixels along the side of one token: patch size times merge size."""
    min_pixels: int
    max_pixels: int

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Return (width, height) after the processor's resize: multiples of `factor` within the pixel limits.

        The Qwen2-VL rule: round both sides; outside the limits scale both by the same ratio first.
        """
        factor = self.factor
        wide, high = _round_to_factor(width, factor), _round_to_factor(height, factor)
        if wide * high > self.max_pixels:
            ratio = math.sqrt(width * height / self.max_pixels)
            wide = max(factor, math.floor(width / ratio / factor) * factor)
            high = max(factor, math.floor(height / ratio / factor) * factor)
        elif wide * high < self.min_pixels:
            ratio = math.sqrt(self.min_pixels / (width * height))
            wide = math.ceil(width * ratio / factor) * factor
            high = math.ceil(height * ratio / factor) * factor
        return wide, high

    def tokens(self, width: int, height: int) -> int:
        """Return how many tokens an image takes."""
        wide, high = self.size(width, height)
        return wide * high // self.factor**2


class ModelTokens:
    """The tokenizer, chat template and image grid of a model folder (or hub id)."""

    def __init__(self, model: str) -> None:
        """Raises `SettingsError` when the model has no tokenizer or chat template."""
        self._folder = _find_model_folder(model)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self._folder / "tokenizer.json"))

    @cached_property
    def grid(self) -> ImageGrid:
        """The image grid. Raises `SettingsError` when the model takes no images."""
        values: Any = None
        if (self._folder / "processor_config.json").is_file():  # newer transformers write all processors into it
            values = self._json("processor_config.json").get("image_processor")
        if not isinstance(values, dict):
            values = self._json("preprocessor_config.json")
        size = values.get("size") or {}
        try:
            factor = int(values["patch_size"]) * int(values["merge_size"])
            low = int(values.get("min_pixels") or size["shortest_edge"])
            high = int(values.get("max_pixels") or size["longest_edge"])
        except (KeyError, TypeError):
            raise SettingsError(f"{self._folder}: no usable image processor: not a Qwen-VL model") from None
        return ImageGrid(factor, low, high)

    @cached_property
    def placeholder(self) -> int | None:
        """The id of the token that stands for a part of an image; None where the tokenizer has none."""
        return self.tokenizer.token_to_id(IMAGE_PAD)

    @cached_property
    def stop(self) -> int | None:
        """The id of the token with which the chat template ends an assistant's turn; None where it is no such token."""
        content = "so it is"
        text = self._render([{"role": "user", "content": ""}, {"role": "assistant", "content": content}], prompt=False)
        after = self.response_ids(text.rpartition(content)[2])
        return after[0] if after and after[0] in self.tokenizer.get_added_tokens_decoder() else None

    def prompt_ids(self, messages: Sequence[Message], sizes: Sequence[tuple[int, int]]) -> list[int]:
        """Return the ids of a prompt up to the assistant's turn. `sizes`: (width, height) of each image, in order."""
        if is_raw(messages):
            return self.response_ids(self.first + messages[0].content)
        text = self._render([{"role": message.role, "content": _split_content(message)} for message in messages])
        pad = self.placeholder
        left, text_ids = iter(sizes), self.response_ids(text)
        ids: list[int] = []
        start = 0
        for place in [place for place, token in enumerate(text_ids) if token == pad]:
            ids += text_ids[start:place]
            ids += text_ids[place : place + 1] * self.grid.tokens(*next(left))
            start = place + 1
        return ids + text_ids[start:]

    @cached_property
    def date_block(self) -> str:
        """What the chat template writes before the system message, within its turn; empty but for Llama's."""
        if "Cutting Knowledge Date" not in self._source:
            return ""
        text = self._render([{"role": "system", "content": _MARK}, {"role": "user", "content": ""}])
        match = _DATE_BLOCK.search(text.partition(_MARK)[0])
        return match.group() if match else ""

    @property
    def strips(self) -> bool:
        """Whether the chat template strips the text of a message, as Llama's do."""
        return bool(re.search(r"message\[.content.\]\s*\|\s*trim", self._source))

    @property
    def first(self) -> str:
        """The token that texts begin with; empty where there is none."""
        return self._special_tokens["bos_token"]

    def response_ids(self, text: str) -> list[int]:
        """Return the ids of a response, or of any other text, without a stop token."""
        return self._join_ids(text) if self._in_pieces else list(self._encode(text))

    def _join_ids(self, text: str) -> list[int]:
        """Return the ids of the added tokens, and of the pieces between them, one after the other."""
        ids: list[int] = []
        for number, piece in enumerate(self._separator.split(text)):
            ids += (self._added[piece],) if number % 2 else self._remembered(piece)
        return ids

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _remembered(self) -> Callable[[str], tuple[int, ...]]:
        """Encodes with a memory: a system prompt, and rounds that neighbouring samples share, are encoded once."""
        return lru_cache(maxsize=_REMEMBERED)(self._encode)

    @cached_property
    def _added(self) -> dict[str, int]:
        """The tokens at which the tokenizer cuts a text before it looks at what lies between, with their ids."""
        return {
            token.content: id_
            for id_, token in self.tokenizer.get_added_tokens_decoder().items()
            if not (token.lstrip or token.rstrip or token.single_word or token.normalized)
        }

    @cached_property
    def _separator(self) -> re.Pattern[str]:
        """Matches an added token, the longest of several."""
        return re.compile("(" + "|".join(map(re.escape, sorted(self._added, key=len, reverse=True))) + ")")

    @cached_property
    def _in_pieces(self) -> bool:
        """Whether a text has the ids of its pieces: some tokenizers treat the first piece in another way."""
        frame = [token for token in _FRAME if token in self._added]
        text = "".join(f"{token}{probe}" for probe in _PROBES for token in frame)
        return bool(frame) and self._join_ids(text) == list(self._encode(text))

    def _render(self, messages: list[dict[str, Any]], *, prompt: bool = True) -> str:
        return self._template.render(
            messages=messages, add_generation_prompt=prompt, date_string=DATE, **self._special_tokens
        )

    @cached_property
    def _special_tokens(self) -> dict[str, str]:
        """The tokens that a template may name, as transformers gives them to it."""
        known = (self._folder / "tokenizer_config.json").is_file()
        values = self._json("tokenizer_config.json") if known else {}
        tokens = {name: values.get(name) or "" for name in ("bos_token", "eos_token")}
        return {name: token["content"] if isinstance(token, dict) else token for name, token in tokens.items()}

    @cached_property
    def _source(self) -> str:
        file = self._folder / "chat_template.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8")
        template = self._json("tokenizer_config.json").get("chat_template")
        if not isinstance(template, str):
            raise SettingsError(f"{self._folder}: the model has no chat template")
        return template

    @cached_property
    def _template(self) -> jinja2.Template:
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        return environment.from_string(self._source)

    def _json(self, name: str) -> dict[str, Any]:
        try:
            values = json.loads((self._folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SettingsError(f"{self._folder / name}: can't be read: {error}") from None
        return values if isinstance(values, dict) else {}


def _find_model_folder(model: str) -> Path:
    folder = Path(model)
    if folder.is_dir():
        if not (folder / "tokenizer.json").is_file():
            hint = "set policy_config.base_model to a model folder or a hub id"
            raise SettingsError(f"{folder}: no model there (no tokenizer.json)", hint=hint)
        return folder
    if folder.is_absolute() or model.count("/") != 1:
        hint = "webgym init-model tiny DIR makes a small one; or give a hub id"
        raise SettingsError(f"policy_config.base_model: no folder {model}", hint=hint)
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=list(FILES)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise SettingsError(
            f"policy_config.base_model: there is no folder {model}, and it can't be fetched from the hub: {reason}",
            hint="run the command in the folder where the run was made, or name the model by an absolute path",
        ) from error


def _split_content(message: Message) -> str | list[dict[str, str]]:
    if IMAGE not in message.content:
        return message.content
    return [
        {"type": "image"} if piece is None else {"type": "text", "text": piece} for piece in split_at_images(message)
    ]


def _round_to_factor(value: int, factor: int) -> int:
    return max(factor, round(value / factor) * factor)
