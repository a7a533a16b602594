"""Parser of question/answer records: all fields except the question are passed to the reward function by name.

The question's field may be `question`, `prompt`, `problem` or `messages` (the first that exists): a text, or chat
messages. Images are in the field `images` (or `image`), or among the parts of the message: files or data URLs, which an
episode gets as PNG within the size limits of serving and training.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.config.policy_config import ImageSettings
from webgym_cli.errors import UsageError
from webgym_cli.records.sample import IMAGE
from webgym_cli.records.task import Task
from webgym_cli.store.screenshots import PNG_SIGNATURE, flatten_picture
from webgym_cli.tasks.convert import convert_records, digest_record
from webgym_cli.tasks.registry import BadTaskError, ConversionResult, TaskFormat
from webgym_cli.util.files import open_regular
from webgym_cli.util.json_values import as_list, as_object

# Fields of other kinds of tasks, in which `question` is an unknown field.
_OF_OTHERS = frozenset({"instruction", "task_name", "start_url", "website"})
_SHOWN = (str, int, float)
# Names of the question's field in common datasets, the most specific first.
_QUESTIONS = ("question", "prompt", "problem", "messages")


def read_question(value: Mapping[str, Any]) -> Task | None:
    """Return the task of a question/answer record; None for another record. Raises `BadTaskError`.

    Without an `id` it gets a hash of the record. An answer that is a text or number is also the reference answer.
    """
    name = next((name for name in _QUESTIONS if name in value), "")
    if not name or _OF_OTHERS & value.keys():
        return None
    question, images = _read_text(name, value[name])
    images += [place for field in ("images", "image") if value.get(field) for place in list_images(value[field])]
    if images:
        question = question.replace(IMAGE, "").strip()
    if not question:
        raise BadTaskError(f"{name}: a text beside the pictures is needed")
    given = value.get("id")
    if given is not None and (isinstance(given, bool) or not isinstance(given, str | int) or given == ""):
        raise BadTaskError("id: a text or a whole number is needed")
    fields = {key: item for key, item in value.items() if key not in (name, "id", "environment", "image")}
    if images:
        fields["images"] = images
    answer = fields.get("answer")
    digest = digest_record(value)
    return Task(
        id=digest if given is None else str(given),
        instruction=question,
        environment="tools",
        reference_answer=str(answer) if isinstance(answer, _SHOWN) and not isinstance(answer, bool) else None,
        extra=fields,
    )


def _read_text(name: str, given: Any) -> tuple[str, list[str]]:
    """Return the question and its images: a text, or the parts of the one message. Raises `BadTaskError`."""
    images: list[str] = []
    if isinstance(given, list):
        message = given[0] if len(given) == 1 and isinstance(given[0], Mapping) else {}
        if message.get("role") != "user":
            advice = "a system message is the setting agent.system_prompt"
            raise BadTaskError(f"{name}: a text, or one message by the user, is needed", advice)
        given = message.get("content")
        if isinstance(given, list):
            parts = list(map(as_object, given))
            if wrong := next((part for part in parts if part.get("type") not in ("text", "image", "image_url")), None):
                raise BadTaskError(f"{name}: a message of texts and pictures is needed, not of {wrong.get('type')}")
            images = [place for part in parts if part["type"] != "text" for place in list_images(part[part["type"]])]
            given = "\n".join(str(part.get("text")) for part in parts if part["type"] == "text")
    if not isinstance(given, str) or not given.strip():
        raise BadTaskError(f"{name}: a text that is not empty is needed")
    return given, images


_FINAL = re.compile(r"####\s*([-+]?[\d,]*\.?\d+)\s*$")


def convert_gsm8k(path: Path, settings: Settings, sites: Sequence[str]) -> ConversionResult:
    """Return the questions of a file (JSON Lines, an array, Parquet). Raises `UsageError` if a site's URL is given."""
    if sites:
        raise UsageError("--site: questions have no site", hint="leave --site out")
    return convert_records(path, _read_row)


def _read_row(value: Mapping[str, Any], _place: str) -> Task:
    """Return the question with its final number as `answer` and the worked one as `solution`."""
    worked = value.get("answer")
    if isinstance(worked, bool) or not isinstance(worked, str | int | float):
        raise BadTaskError("answer: a worked answer that ends with #### and a number, or a number, is needed")
    final = _FINAL.search(worked) if isinstance(worked, str) else None
    if isinstance(worked, str) and final is None:
        raise BadTaskError(f"answer: it does not end with #### and a number: {worked[-40:]!r}")
    row = dict(value) if final is None else {**value, "answer": final[1].replace(",", ""), "solution": worked}
    if (task := read_question(row)) is None:
        raise BadTaskError("question: a text is needed")
    return task


GSM8K = TaskFormat(convert_gsm8k)


_DATA = "data:image/"
_PLACE = "a path, a data URL, or an object with path or bytes (base64), is needed"


def list_images(given: Any) -> list[str]:
    """Return the images of a record's field (one or several) as paths and data URLs.

    Raises `BadTaskError`.
    """
    return [_read_place(item) for item in as_list(given)]


def _read_place(item: Any) -> str:
    if isinstance(item, Mapping) and isinstance(item.get("bytes"), str):
        return f"{_DATA}png;base64,{item['bytes']}"
    if isinstance(item, Mapping):
        item = item.get("url") or item.get("path")
    if not isinstance(item, str) or not item or "\0" in item:
        raise BadTaskError(f"images: {_PLACE}")
    return item


def load_image(place: str, limits: ImageSettings) -> bytes:
    """Return an image as PNG, scaled to the pixel limits. Raises `ValueError` with its name."""
    from PIL import Image

    try:
        data = _read_bytes(place)
        with Image.open(io.BytesIO(data)) as opened:
            image = flatten_picture(opened)
            wanted = min(max(image.width * image.height, limits.image_min_pixels), limits.image_max_pixels)
            ratio = math.sqrt(wanted / (image.width * image.height))
            if ratio == 1 and data.startswith(PNG_SIGNATURE) and image is opened:
                return data
            rounded = math.floor if ratio < 1 else math.ceil
            size = (max(1, rounded(image.width * ratio)), max(1, rounded(image.height * ratio)))
            buffer = io.BytesIO()
            image.resize(size).save(buffer, format="PNG")
            return buffer.getvalue()
    except (OSError, SyntaxError, ValueError, binascii.Error, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition(": ")[0]
        raise ValueError(f"{place[:200]}: no picture: {reason}") from None


def _read_bytes(place: str) -> bytes:
    if place.startswith(_DATA):
        return base64.b64decode(place.partition(",")[2], validate=True)
    with open_regular(Path(place)) as file:
        return file.read()
