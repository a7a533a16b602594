"""Prompts as the server renders them against LLaMA-Factory's own rendering, with the shapes of real chat templates."""

import asyncio
import json

import pytest

from tests.records.builders import new_run
from tests.train.train_data import prepare, settings_for
from webgym_cli.agent.prompts.webrl_prompt import render_raw
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.load import load
from webgym_cli.errors import SettingsError
from webgym_cli.prepare.sft.execute import template_fit
from webgym_cli.prepare.sft.sharegpt import to_sharegpt
from webgym_cli.records.sample import Message, Sample
from webgym_cli.records.trajectory import Observation, PromptSpec
from webgym_cli.train.llamafactory import rendering

pytestmark = pytest.mark.stack

LLAMA = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
GLM = (
    "[gMASK]<sop>{% for item in messages %}{% if item['content'] %}<|{{ item['role'] }}|>{{ item['metadata'] }}\n"
    "{{ item['content'] }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
QWEN = """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
SPECIAL = {
    "llama": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"],
    "glm": ["<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"],
    "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
}
EDGES = {"llama": ("<|begin_of_text|>", "<|eot_id|>"), "glm": (None, "<|endoftext|>"), "qwen2": (None, "<|im_end|>")}


def text_model(folder, template):
    """Write a tokenizer of single bytes with a family's special tokens and chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    folder.mkdir(parents=True)
    kind = folder.name
    vocabulary = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL[kind]])
    tokenizer.save(str(folder / "tokenizer.json"))
    first, last = EDGES[kind]
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": first, "eos_token": last, "pad_token": last}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    (folder / "chat_template.jinja").write_text(template)
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    return folder


def conversation(*turns, system="You are a web agent.", reply="click [3]"):
    messages = [Message(role="system", content=system)] if system else []
    roles = ("user", "assistant") * len(turns)
    messages += [Message(role=role, content=text) for role, text in zip(roles, turns, strict=False)]
    messages.append(Message(role="assistant", content=reply))
    return Sample(messages=tuple(messages), images=(), trajectory="t", step=0, iteration=0, reward=1.0)


@pytest.fixture
def compare(in_train_role, tmp_path, train_python, monkeypatch):
    """Returns how to compare samples of a model, as a training does it first."""

    async def run_forked(limits, argv, name, **_):
        in_train_role(*argv[1:])
        return 0

    monkeypatch.setattr(rendering, "run_within", run_forked)
    monkeypatch.setattr(rendering, "role_home", lambda: tmp_path / "home")

    async def compare(folder, samples, template=None):
        named = template or load(overrides=[f"policy_config.base_model={folder}"]).policy_config.template
        settings = settings_for(folder, train_python)
        policy = settings.policy_config.model_copy(update={"template": named})
        settings = settings.model_copy(update={"policy_config": policy})
        run = new_run(tmp_path / f"run-{folder.parent.name}-{folder.name}", settings)
        prepare(run, settings, [], "model_20260101_000000")
        fit = template_fit(settings, ModelTokens(str(folder)))
        (run.dataset / "finetune_train.json").write_text(json.dumps([to_sharegpt(fit(one), str) for one in samples]))
        settings = settings.model_copy(update={"train": settings.train.model_copy(update={"check_template": True})})
        await rendering.require_same_rendering(run, settings, run.logs)

    return compare


async def test_each_family_is_trained_on_what_was_served(tmp_path, compare, monkeypatch):
    plain, opened = (
        [conversation("Find it.", reply=reply), conversation("Find it.", "click [1]", "and now?", reply=reply)]
        for reply in ("click [3]", "\nclick [3]")
    )
    unled, blank = conversation("Find it.", system=""), conversation("Find it.\n\n", system="Be brief.\n")
    families = [
        (text_model(tmp_path / "llama", LLAMA), [*plain, unled, blank]),
        (text_model(tmp_path / "glm", GLM), opened),
        (text_model(tmp_path / "qwen2", QWEN), [*plain, unled]),
    ]
    raw = render_raw(PromptSpec(version="webrl_released"), "Find it.", [], Observation(url="", html="<a> x </a>"))
    action = Message(role="assistant", content='do(action="Press Enter")')
    released = conversation("", system="").model_copy(update={"messages": (raw, action)})
    families.append((text_model(tmp_path / "raw" / "llama", LLAMA), [released], "empty"))
    await asyncio.gather(*(compare(*family) for family in families))
    assert len(list((tmp_path / "home/rendering").iterdir())) == 4
    monkeypatch.setattr(rendering, "_compare", None)
    for family in families:
        await compare(*family)  # known: nothing is compared again


async def test_another_template_is_refused_with_both_texts(tmp_path, compare):
    folder = text_model(tmp_path / "qwen2", QWEN)
    with pytest.raises(SettingsError, match=r"policy_config\.template: LLaMA-Factory's qwen3_nothink") as caught:
        await compare(folder, [conversation("Find it.", system="")], "qwen3_nothink")
    served, trained = str(caught.value).splitlines()[1:]
    assert "You are Qwen" in served
    assert "<|im_start|>user" in trained and "You are Qwen" not in trained
