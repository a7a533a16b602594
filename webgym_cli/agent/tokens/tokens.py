"""Count and render tokens as the policy's server does: its tokenizer, its chat template, its image sizes.

Requires only the `tokenizers` library and the model's own small files, not torch. The tests compare the results with
the real processors.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.agent.prompt import split_at_images
from webgym_cli.agent.prompts.webrl_prompt import is_raw
from webgym_cli.config.model_families import DATE, HUB_ADDRESS
from webgym_cli.errors import SettingsError
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.util.json_values import as_object
from webgym_cli.util.proxies import describe_proxy

if TYPE_CHECKING:
    import jinja2
    from tokenizers import Tokenizer

# Files that are read from a model folder or downloaded from the hub.
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "preprocessor_config.json",
    "processor_config.json",
)
# Maximum number of cached encodings of text pieces.
_REMEMBERED = 4096
# The dates that Llama's chat templates write before the system message, within its turn.
_DATE_BLOCK = re.compile(r"Cutting Knowledge Date: .*\nToday Date: .*\n\n$")
_FRAME = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>")
# Texts between special tokens for the test whether pieces can be encoded separately.
_PROBES = ("", "user\n", " led by a space", "Ends in one ", "\n\n", "e\u0301 and 12,345.67", "\u4f60\u597d")
# Placeholder for the system message, to locate the text that precedes it.
_MARK = "the system message"
# Qwen-VL's image token: one per merged patch.
IMAGE_PAD = "<|image_pad|>"


@dataclass(frozen=True, slots=True)
class ImageGrid:
    """Image sizing of the model's processor."""

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
        """Return the number of tokens of an image of this size, before the resize."""
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
        """The image grid. Raises `SettingsError` if the model does not support images."""
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
        """Id of `IMAGE_PAD`; None if the tokenizer lacks it."""
        return self.tokenizer.token_to_id(IMAGE_PAD)

    @cached_property
    def stop(self) -> int | None:
        """Id of the added token that ends an assistant turn in the chat template; None if it ends otherwise."""
        content = "so it is"
        text = self._render([{"role": "user", "content": ""}, {"role": "assistant", "content": content}], prompt=False)
        after = self.response_ids(text.rpartition(content)[2])
        return after[0] if after and after[0] in self.tokenizer.get_added_tokens_decoder() else None

    def prompt_ids(self, messages: Sequence[Message], sizes: Sequence[tuple[int, int]]) -> list[int]:
        """Return the token ids of a prompt, generation prompt included. `sizes`: (width, height) of each image."""
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
        """The dates that Llama's chat templates write before the system message; empty for other templates."""
        if "Cutting Knowledge Date" not in self._source:
            return ""
        text = self._render([{"role": "system", "content": _MARK}, {"role": "user", "content": ""}])
        match = _DATE_BLOCK.search(text.partition(_MARK)[0])
        return match.group() if match else ""

    @property
    def strips(self) -> bool:
        """Whether the chat template strips the content of messages, as Llama's do."""
        return bool(re.search(r"message\[.content.\]\s*\|\s*trim", self._source))

    @property
    def first(self) -> str:
        """The BOS token; empty if the tokenizer has none."""
        return self._special_tokens["bos_token"]

    def response_ids(self, text: str) -> list[int]:
        """Return the token ids of a response, or of any other text, without added BOS or stop token."""
        return self._join_ids(text) if self._in_pieces else list(self._encode(text))

    def _join_ids(self, text: str) -> list[int]:
        """Encode the added tokens of a text, and the pieces between them, separately."""
        ids: list[int] = []
        for number, piece in enumerate(self._separator.split(text)):
            ids += (self._added[piece],) if number % 2 else self._remembered(piece)
        return ids

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _remembered(self) -> Callable[[str], tuple[int, ...]]:
        """Cached encoder: system prompts, and rounds that neighbouring samples share, are encoded once."""
        return lru_cache(maxsize=_REMEMBERED)(self._encode)

    @cached_property
    def _added(self) -> dict[str, int]:
        """Added tokens, with ids, at which the tokenizer splits a text before it encodes the pieces between them.

        Tokens whose matching depends on the text around them, or on its normalisation, are excluded.
        """
        return {
            token.content: id_
            for id_, token in self.tokenizer.get_added_tokens_decoder().items()
            if not (token.lstrip or token.rstrip or token.single_word or token.normalized)
        }

    @cached_property
    def _separator(self) -> re.Pattern[str]:
        """Pattern of an added token; the longest one matches first."""
        return re.compile("(" + "|".join(map(re.escape, sorted(self._added, key=len, reverse=True))) + ")")

    @cached_property
    def _in_pieces(self) -> bool:
        """Whether separate encoding gives a text's ids: some tokenizers encode the first piece in another way."""
        frame = [token for token in _FRAME if token in self._added]
        text = "".join(f"{token}{probe}" for probe, token in product(_PROBES, frame))
        return bool(frame) and self._join_ids(text) == list(self._encode(text))

    def _render(self, messages: list[dict[str, Any]], *, prompt: bool = True) -> str:
        return self._template.render(
            messages=messages, add_generation_prompt=prompt, date_string=DATE, **self._special_tokens
        )

    @cached_property
    def _special_tokens(self) -> dict[str, str]:
        """BOS and EOS tokens for the chat template, as transformers passes them."""
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
        return as_object(values)


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
        reason = str(error).partition("\n")[0] + describe_proxy(HUB_ADDRESS)
        raise SettingsError(
            f"policy_config.base_model: there is no folder {model}, and it can't be fetched from the hub: {reason}",
            hint="download the model once, or name its folder by an absolute path: -s policy_config.base_model=/PATH",
        ) from error


def _split_content(message: Message) -> str | list[dict[str, str]]:
    if IMAGE not in message.content:
        return message.content
    return [
        {"type": "image"} if piece is None else {"type": "text", "text": piece} for piece in split_at_images(message)
    ]


def _round_to_factor(value: int, factor: int) -> int:
    return max(factor, round(value / factor) * factor)
