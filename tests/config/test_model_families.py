"""What follows from a model: its template, whether it thinks, and what contradicts it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from webgym_cli.config.load import load, load_with_sources
from webgym_cli.config.model_defaults import require_template
from webgym_cli.config.model_families import (
    DATE,
    FAMILIES,
    chat_template_kwargs,
    detect_model,
    find_call_format,
    find_model_folder,
    template_opens_thought,
)
from webgym_cli.errors import SettingsError

TURN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% for p in m.content %}{{ p.text }}{% endfor %}<|im_end|>\n{% endfor %}"
)
ASKS = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
THINKER, ANSWERER = "Qwen/Qwen3-VL-8B-Thinking", "Qwen/Qwen3-VL-8B-Instruct"
THINKS = "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"

HUB = [
    ("Qwen/Qwen2-VL-7B-Instruct", "qwen2_vl", False),
    ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2_vl", False),
    ("Qwen/Qwen3-VL-8B-Instruct", "qwen3_vl_nothink", False),
    ("Qwen/Qwen3-VL-8B-Thinking", "qwen3_vl", True),
    ("Qwen/Qwen3-VL-235B-A22B-Thinking", "qwen3_vl", True),
    ("Qwen/Qwen2.5-7B-Instruct", "qwen", False),
    ("Qwen/Qwen3-4B-Instruct-2507", "qwen3_nothink", False),
    ("Qwen/Qwen3-4B-Thinking-2507", "qwen3", True),
    ("OpenGVLab/InternVL3-8B-hf", "intern_vl", False),
    ("OpenGVLab/InternVL3_5-8B-HF", "intern_vl", False),
    ("google/gemma-3-12b-it", "gemma3", False),
    ("google/gemma-3n-E4B-it", "gemma3n", False),
    ("meta-llama/Llama-3.2-11B-Vision-Instruct", "mllama", False),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4", False),
    ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama3", False),
    ("meta-llama/Llama-3.3-70B-Instruct", "llama3", False),
    ("zai-org/glm-4-9b-chat", "glm4", False),
    ("zai-org/GLM-4-9B-0414", "glm4", False),
    ("zai-org/GLM-4.1V-9B-Thinking", "glm4v", True),
    ("zai-org/GLM-4.1V-9B-Base", "glm4v", False),
    ("zai-org/GLM-4.5V", "glm4_5v", False),
    ("openbmb/MiniCPM-V-2_6", "minicpm_v", False),
    ("openbmb/MiniCPM-V-4_6", "minicpm_v_4_6", False),
    ("openbmb/MiniCPM-o-2_6", "minicpm_o", False),
    ("mistral-community/pixtral-12b", "pixtral", False),
    ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistral_small", False),
    ("mistralai/Ministral-3-8B-Instruct-2512", "ministral3", False),
    ("XiaomiMiMo/MiMo-VL-7B-SFT", "qwen2_vl", False),
    ("XiaomiMiMo/MiMo-VL-7B-RL", "mimo_vl", False),
]
TYPES = [
    ({"model_type": "qwen2_vl"}, "qwen2_vl"),
    ({"model_type": "qwen2_5_vl"}, "qwen2_vl"),
    ({"model_type": "qwen3_vl_moe"}, "qwen3_vl_nothink"),
    ({"model_type": "internvl"}, "intern_vl"),
    ({"model_type": "gemma3"}, "gemma3"),
    ({"model_type": "mllama"}, "mllama"),
    ({"model_type": "llama4"}, "llama4"),
    ({"model_type": "glm4v_moe"}, "glm4_5v"),
    ({"model_type": "minicpmv"}, "minicpm_v"),
    ({"model_type": "llava", "vision_config": {"model_type": "pixtral"}}, "pixtral"),
    ({"model_type": "mistral3", "text_config": {"model_type": "mistral"}}, "mistral_small"),
    ({"model_type": "mistral3", "text_config": {"model_type": "ministral3"}}, "ministral3"),
]


@pytest.fixture(autouse=True)
def no_hub(tmp_path, monkeypatch):
    """No model was loaded before."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def folder(tmp_path):
    """Returns how to make a model's folder without weights."""

    def make(config, chat="", name="model", file="chat_template.jinja"):
        result = tmp_path / name
        result.mkdir(parents=True)
        (result / "config.json").write_text(json.dumps(config))
        if chat:
            (result / file).write_text(chat if file.endswith("jinja") else json.dumps({"chat_template": chat}))
        return result

    return make


def policy(model, *overrides):
    return load(overrides=[f"policy_config.base_model={model}", *overrides]).policy_config


@pytest.mark.parametrize(("model", "template", "thinking"), HUB)
def test_a_model_on_the_hub_is_told_by_its_name(model, template, thinking):
    result = policy(model)
    assert (result.template, result.thinking) == (template, thinking)


@pytest.mark.parametrize(
    "model", ["owner/model", "google/gemma-7b", "Qwen/Qwen3-Coder-30B", "meta-llama/Llama-3.1-8B", "x" * 300]
)
def test_a_model_of_no_known_family_is_refused_by_its_training(model):
    settings = load(overrides=[f"policy_config.base_model={model}"])
    assert (settings.policy_config.template, settings.policy_config.thinking) == ("auto", False)
    with pytest.raises(SettingsError, match=f"policy_config.template: the family of {model} is not known") as caught:
        require_template(settings)
    assert "-s policy_config.template=NAME" in caught.value.hint
    named = load(overrides=[f"policy_config.base_model={model}", "policy_config.template=llama3"])
    assert require_template(named) == "llama3"


@pytest.mark.parametrize(("config", "template"), TYPES)
def test_a_folder_is_told_by_its_config(folder, config, template):
    assert policy(folder(config)).template == template


@pytest.mark.parametrize(
    ("kind", "chat", "template"),
    [
        ("llama", "<|start_header_id|>", "llama3"),
        ("llama", "[INST]", "auto"),
        ("chatglm", "[gMASK]<sop>", "glm4"),
        ("chatglm", "[Round 1]", "auto"),
    ],
)
def test_one_type_of_several_families_is_told_by_the_chat_template(folder, kind, chat, template):
    assert policy(folder({"model_type": kind}, chat)).template == template


def test_the_call_format_is_the_chat_templates(folder):
    own = "You may call one or more functions to assist with the user query. <tool_call>"
    assert find_call_format(str(folder({"model_type": "qwen2"}, own))) == "qwen"
    assert find_call_format(str(folder({"model_type": "qwen3_5"}, f"{own}<function=a>", name="xml"))) == "hermes"
    assert find_call_format("Qwen/Qwen2.5-3B-Instruct") == "qwen"
    assert find_call_format("meta-llama/Llama-3.3-70B-Instruct") == "hermes"
    assert load(overrides=["policy_config.base_model=Qwen/Qwen2.5-3B-Instruct"]).agent.call_format == "qwen"


def test_llamas_chat_template_is_told_its_date(folder):
    assert chat_template_kwargs(str(folder({"model_type": "llama"}, "{{ date_string }}"))) == {"date_string": DATE}
    assert chat_template_kwargs("meta-llama/Llama-3.3-70B-Instruct") == {"date_string": DATE}
    assert chat_template_kwargs("Qwen/Qwen2.5-7B-Instruct") == {}


@pytest.mark.parametrize("file", ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"])
def test_a_chat_template_that_opens_the_thought_makes_a_thinking_model(folder, file):
    result = policy(folder({"model_type": "qwen3_vl"}, TURN + THINKS, file=file))
    assert (result.template, result.thinking) == ("qwen3_vl", True)
    result = policy(folder({"model_type": "qwen3_vl"}, TURN + ASKS, name="other", file=file))
    assert (result.template, result.thinking) == ("qwen3_vl_nothink", False)


def test_two_families_of_one_type_are_told_by_the_folders_name(folder):
    assert policy(folder({"model_type": "qwen2_5_vl"}, name="MiMo-VL-7B-RL-2508")).template == "mimo_vl"


def test_a_model_that_was_loaded_before_is_told_by_its_files(folder, tmp_path):
    home = "hub/models--owner--model"
    folder({"model_type": "qwen3_vl"}, TURN + THINKS, name=f"{home}/snapshots/abc")
    (tmp_path / home / "refs").mkdir()
    (tmp_path / home / "refs" / "main").write_text("abc\n")
    result = policy("owner/model")
    assert (result.template, result.thinking) == ("qwen3_vl", True)


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HF_HOME", "HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"])
def test_the_hub_s_cache_is_where_its_library_has_it(tmp_path, monkeypatch, variable):
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(variable, "~/cache")
    look = "import huggingface_hub.constants as known; print(known.HF_HUB_CACHE)"
    cache = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout.strip()
    model = Path(cache, "models--owner--model")
    (model / "snapshots/abc").mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs/main").write_text("abc")
    assert find_model_folder("owner/model") == model / "snapshots/abc"


@pytest.mark.parametrize(
    ("template", "opens"),
    [
        (TURN + THINKS, True),
        (TURN + ASKS, False),
        (TURN + ASKS + "{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}", False),
        ("{% for m in messages %}{{ '<u>' + m.content }}{% endfor %}<a><think>", True),
        ("{% for m in messages %}{{ '<u>' + m.content }}{% endfor %}<a>", False),
        ("{{ '<think> is a word of the system' }}" + TURN + ASKS, False),
        ("{{ raise_exception('no') }}", None),
        ("{% for %}", None),
        ("{{ messages.__class__.__mro__ }}", None),
        ("{{ 1 // (messages | length - 1) }}", None),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", None),
        ("nothing that was asked", None),
    ],
)
def test_whether_a_chat_template_opens_the_thought(template, opens):
    assert template_opens_thought(template) is opens


def test_a_template_tells_what_the_model_does_not_and_what_is_said_wins(folder):
    result = policy("Qwen/Qwen3-VL-8B-Instruct", "policy_config.template=mine", "policy_config.thinking=true")
    assert (result.template, result.thinking) == ("mine", True)
    result = policy(folder({"model_type": "qwen3_vl"}), "policy_config.template=qwen3_vl")
    assert (result.template, result.thinking) == ("qwen3_vl", True)


@pytest.mark.parametrize(
    ("model", "override", "message", "hint"),
    [
        (THINKER, "template=qwen3_vl_nothink", "{} is not for {}, which thinks before", "auto takes qwen3_vl"),
        (ANSWERER, "template=qwen3_vl", "{} is not for {}, which answers at once", "auto takes qwen3_vl_nothink"),
        ("zai-org/GLM-4.1V-9B-Thinking", "thinking=false", "{1} thinks before it acts", "true"),
    ],
)
def test_what_contradicts_the_model_is_refused(model, override, message, hint):
    key, value = override.split("=")
    with pytest.raises(SettingsError) as caught:
        policy(model, f"policy_config.{override}")
    assert str(caught.value).startswith(f"policy_config.{key}: {message.format(value, model)}")
    assert f"policy_config.{key}={hint}" in caught.value.hint


def test_the_parser_follows_the_model_and_may_be_none():
    thinks = f"policy_config.base_model={THINKER}"
    assert load().serve.reasoning_parser == "none"
    assert load(overrides=[thinks]).serve.reasoning_parser == "deepseek_r1"
    assert load(overrides=[thinks, "serve.reasoning_parser=none"]).serve.reasoning_parser == "none"
    assert load(overrides=["serve.reasoning_parser=qwen3"]).serve.reasoning_parser == "qwen3"


def test_the_source_of_what_follows_is_the_model():
    _, sources = load_with_sources(overrides=["policy_config.thinking=true"])
    assert sources["policy_config.template"] == "model Qwen/Qwen3-VL-8B-Instruct"
    assert sources["policy_config.thinking"] == "-s policy_config.thinking"


def test_a_run_keeps_what_followed_when_its_model_is_gone(tmp_path, folder):
    model = folder({"model_type": "qwen3_vl"}, TURN + THINKS)
    first = load(overrides=[f"policy_config.base_model={model}"])
    (tmp_path / "config.json").write_text(first.model_dump_json())
    shutil.rmtree(model)
    assert load(run_config=tmp_path / "config.json") == first


def test_families_are_told_apart():
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    assert detect_model(THINKER).is_reasoning is True
    assert detect_model(ANSWERER).is_reasoning is False
    assert detect_model("OpenGVLab/InternVL3-8B-hf").is_reasoning is None


def test_the_documentation_has_every_family():
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
    rows = {tuple(cell.strip().strip("`") for cell in row.split("|")[1:-1]) for row in page.splitlines() if "|" in row}
    for family in FAMILIES:
        same = "the same" if family.reasoning_parser else "-"
        assert (family.name, family.template, family.thinking_template or same, family.reasoning_parser or "-") in rows
