"""Known model families, with the training and serving options that depend on them.

LLaMA-Factory needs the name of a chat template, and responses of a thinking model are parsed differently. Both are
derived from the model's files, or from the name of a model on the hub.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from webgym_cli.util.files import read_optional_object, user_folder
from webgym_cli.util.json_values import as_object
from webgym_cli.util.optional import map_known, when

OPEN, CLOSE = "<think>", "</think>"
# Placeholder of the user's message in a trial rendering of a chat template.
_ASKED = "what is asked"
# Text about tools in the chat templates of these families.
_QWEN_CALLS = "You may call one or more functions to assist with the user query."
_QWEN_TOOLS = ("qwen", "qwen3_nothink", "qwen3_vl_nothink")
HUB_ADDRESS = "https://huggingface.co"
# The default date of Llama's chat templates.
DATE = "26 Jul 2024"
_THINKING_NAME = re.compile(r"thinking", re.IGNORECASE)
_INSTRUCT_NAME = re.compile(r"instruct|(?:^|[-_])(?:it|chat)(?:$|[-_])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Models with the same training and serving options."""

    name: str
    types: tuple[str, ...]
    """`model_type` in their `config.json`."""
    names: str
    """Pattern of their names, lower case."""
    template: str
    """LLaMA-Factory's template for those that answer at once."""
    thinking_template: str = ""
    """The one for those that think first; empty: the same."""
    reasoning_parser: str = ""
    """vLLM's parser for the thoughts of those that think first; empty: their responses come whole."""
    sign: str = ""
    """What their chat templates contain, where others have the same `model_type`."""

    def template_for(self, *, thinking: bool) -> str:
        """Return LLaMA-Factory's template."""
        return self.thinking_template if thinking and self.thinking_template else self.template


# vLLM's parsers named after the families drop and move text, and end the reasoning at a `<tool_call>` within it. This
# one splits only at `</think>`, so that the sampled text can be restored.
_DEEPSEEK_R1 = "deepseek_r1"

# Templates are LLaMA-Factory's and parsers vLLM's; tests check both.
FAMILIES = (
    # before the next family, which has the same `model_type`: its name pattern is more specific
    ModelFamily("MiMo-VL", ("qwen2_5_vl",), r"mimo-vl-.*-rl", "mimo_vl"),
    ModelFamily("Qwen2-VL, Qwen2.5-VL", ("qwen2_vl", "qwen2_5_vl"), r"qwen2(?:\.5)?-vl|qvq|mimo-vl-.*-sft", "qwen2_vl"),
    ModelFamily("Qwen3-VL", ("qwen3_vl", "qwen3_vl_moe"), r"qwen3-vl", "qwen3_vl_nothink", "qwen3_vl", _DEEPSEEK_R1),
    ModelFamily("Qwen3.5", ("qwen3_5", "qwen3_5_moe"), r"qwen3\.5", "qwen3_5_nothink", "qwen3_5", _DEEPSEEK_R1),
    ModelFamily("Qwen2, Qwen2.5 (text)", ("qwen2",), r"qwen2(?:\.5)?-\d", "qwen"),
    ModelFamily("Qwen3 (text)", ("qwen3", "qwen3_moe"), r"qwen3-\d", "qwen3_nothink", "qwen3", _DEEPSEEK_R1),
    ModelFamily("InternVL", ("internvl", "internvl_chat"), r"internvl(?:2_5|3)(?:\D|$)", "intern_vl"),
    ModelFamily("Gemma 3n", ("gemma3n",), r"gemma-3n", "gemma3n"),
    ModelFamily("Gemma 3", ("gemma3",), r"medgemma|gemma-3-", "gemma3"),
    ModelFamily("Llama 3.2 Vision", ("mllama",), r"llama-3\.2-\d+b-vision", "mllama"),
    ModelFamily(
        "Llama 3 (text)",
        ("llama",),
        r"llama-3(?:\.\d)?-\d+b-instruct|webrl-(?:orm-)?llama-3",
        "llama3",
        sign="<|start_header_id|>",
    ),
    ModelFamily("Llama 4", ("llama4",), r"llama-4", "llama4"),
    ModelFamily("GLM-4 (text)", ("glm", "glm4", "chatglm"), r"glm-4-\d+b-(?:chat|0414)", "glm4", sign="[gMASK]<sop>"),
    ModelFamily("GLM-4.1V", ("glm4v",), r"glm-4\.1v", "glm4v", reasoning_parser=_DEEPSEEK_R1),
    ModelFamily("GLM-4.5V, GLM-4.6V", ("glm4v_moe",), r"glm-4\.[56]v", "glm4_5v", reasoning_parser=_DEEPSEEK_R1),
    ModelFamily("MiniCPM-V 4.6", ("minicpmv4_6",), r"minicpm-v-4[._]6", "minicpm_v_4_6", reasoning_parser=_DEEPSEEK_R1),
    ModelFamily("MiniCPM-V", ("minicpmv",), r"minicpm-v-", "minicpm_v", reasoning_parser=_DEEPSEEK_R1),
    ModelFamily("MiniCPM-o", ("minicpmo",), r"minicpm-o-", "minicpm_o"),
    ModelFamily("Ministral 3", ("ministral3",), r"ministral-3", "ministral3"),
    ModelFamily("Mistral Small 3", ("mistral3",), r"mistral-small-3", "mistral_small"),
    ModelFamily("Pixtral", ("pixtral",), r"pixtral", "pixtral"),
)

# Families that share a `model_type` and differ in that of their vision or language model.
_BY_PARTS: dict[tuple[Any, Any], str] = {("llava", "pixtral"): "pixtral", ("mistral3", "ministral3"): "ministral3"}


@dataclass(frozen=True, slots=True)
class DetectedModel:
    """Properties detected from a model's files or name."""

    family: ModelFamily
    is_reasoning: bool | None
    """Whether it reasons before it answers; None if unknown."""


def detect_model(model: str) -> DetectedModel | None:
    """Return the family of a model: a local folder, or a hub id, by its files where they were loaded before.

    None for a model of unknown family. Never accesses the network.
    """
    folder = find_model_folder(model)
    config = read_optional_object(folder / "config.json") if folder else {}
    family = _find_by_type(config, model, folder) if folder and config else _find_by_name(model)
    return DetectedModel(family, _detect_thinking(model, folder)) if family else None


def chat_template_kwargs(model: str) -> dict[str, str]:
    """Return the fixed arguments of a model's chat template; by default Llama's inserts the current date."""
    folder = find_model_folder(model)
    family = None if folder else _find_by_name(model)
    dated = "date_string" in read_chat_template(folder) or (family is not None and family.template == "llama3")
    return when(dated, {"date_string": DATE})


def find_call_format(model: str) -> str:
    """Return the tool-call format of a model's chat template; `hermes` if it has no known one."""
    folder = find_model_folder(model)
    if folder is None:
        family = _find_by_name(model)
        return "qwen" if family and family.template in _QWEN_TOOLS else "hermes"
    template = read_chat_template(folder)
    return "qwen" if _QWEN_CALLS in template and "<function=" not in template else "hermes"


def template_opens_thought(template: str) -> bool | None:
    """Return whether a chat template opens a reasoning block for the response; None if it can't be rendered."""
    return map_known(lambda rendered: rendered.rfind(OPEN) > rendered.rfind(CLOSE), _render_prompt(template))


def _find_by_type(config: Mapping[str, Any], model: str, folder: Path) -> ModelFamily | None:
    parts = (config, config.get("vision_config"), config.get("text_config"))
    kind, vision, text = (as_object(part).get("model_type") for part in parts)
    kind = next((_BY_PARTS[kind, part] for part in (vision, text) if (kind, part) in _BY_PARTS), kind)
    matching = [family for family in FAMILIES if kind in family.types]
    matching = [family for family in matching if not family.sign or family.sign in read_chat_template(folder)]
    named = (family for family in matching if re.search(family.names, Path(model).name.lower()))
    # the last of several is the one that the others' names are exceptions of
    return next(chain(named, reversed(matching)), None)


def _find_by_name(model: str) -> ModelFamily | None:
    # The organisation before the slash does not identify the family.
    name = model.rsplit("/", 1)[-1].lower()
    return next((family for family in FAMILIES if re.search(family.names, name)), None)


def _detect_thinking(model: str, folder: Path | None) -> bool | None:
    template = read_chat_template(folder)
    if OPEN in template and template_opens_thought(template):  # to render it, jinja2 is imported
        return True
    name = Path(model).name
    if _THINKING_NAME.search(name):
        return True
    return False if _INSTRUCT_NAME.search(name) else None


def find_model_folder(model: str) -> Path | None:
    """Return the local folder of a model: its own, or the one in the hub cache."""
    if os.path.isdir(model):  # noqa: PTH112 - a name too long for a path is none, no error
        return Path(model)
    # Same path as huggingface_hub, which takes a second to import.
    home = os.environ.get("HF_HOME") or user_folder("XDG_CACHE_HOME", ".cache") / "huggingface"
    hub = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    cache = Path(os.path.expandvars(os.path.expanduser(hub)), f"models--{model.replace('/', '--')}")  # noqa: PTH111
    try:
        matching = cache / "snapshots" / (cache / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return matching if matching.is_dir() else None


def read_chat_template(folder: Path | None) -> str:
    """Return the chat template that a server would use; empty if there is none, or no folder."""
    if folder is None:
        return ""
    try:
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except (OSError, ValueError):
        templates = (
            read_optional_object(folder / name).get("chat_template")
            for name in ("chat_template.json", "tokenizer_config.json")
        )
        return next((text for text in templates if isinstance(text, str)), "")


def _render_prompt(template: str) -> str | None:
    """Return the generation prompt: the rendered text after the user's message."""
    from jinja2 import TemplateError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # as transformers renders them; a template is foreign code
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    jinja.globals["strftime_now"] = lambda form: form
    # Templates of vision models take content parts, those of text models a string.
    for content in ([{"type": "text", "text": _ASKED}], _ASKED):
        try:
            rendered = jinja.from_string(template).render(
                messages=[{"role": "user", "content": content}], add_generation_prompt=True, bos_token="", eos_token=""
            )
        except (TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError):
            continue
        if _ASKED in rendered:
            return rendered.rpartition(_ASKED)[2]
    return None
