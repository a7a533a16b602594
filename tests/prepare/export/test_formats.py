"""The records of each form, and how LLaMA-Factory is told to read them."""

import base64
import json

import pytest

from tests.prepare.buffer import fill
from tests.prepare.exported import exported
from tests.records.builders import UNSOLVED, png, shot, step, trajectory
from webgym_cli.agent.prompt import render_step, render_system_prompt
from webgym_cli.prepare.export.formats import build_messages_record, build_openai_record, build_sharegpt_record
from webgym_cli.prepare.export.options import ExportObjective, ExportOptions, ExportUnit
from webgym_cli.prepare.export.registry import FORMATS
from webgym_cli.prepare.sft.convert import OPENING, Example, build_step_sample, build_trajectory_sample
from webgym_cli.prepare.sft.sharegpt import to_sharegpt
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.dataset import TRAIN
from webgym_cli.records.sample import IMAGE
from webgym_cli.records.trajectory import Element, Observation, PromptSpec, PromptVersion

CALL = '<tool_call>{"name": "computer_use", "arguments": {"action": "go_back"}}</tool_call>'


def contents(sample, role):
    return [message.content for message in sample.messages if message.role == role]


def test_a_step_is_what_was_served():
    episode = trajectory(0, steps=3)
    sample = build_step_sample(episode, 2)
    assert sample.messages[:-1] == render_step(episode, 2).messages
    assert sample.messages[-1].content == episode.steps[2].response
    assert Example(sample).id == "train-0000-00000/2"


@pytest.mark.parametrize("version", (PromptVersion.VANILLA, PromptVersion.COMPLETE))
def test_a_whole_trajectory_shows_every_round_once_and_in_full(version):
    """Also those that the window had dropped, and with the elements that were there to act on."""
    options = {"version": version, "history_window": 1, "max_images": 1, "thinking": True}
    spec = PromptSpec(interaction_mode=InteractionMode.SET_OF_MARKS, **options)
    buttons = [Element(id=0, role="button", name=f"Button {index}", box=(0, 0, 1, 1)) for index in range(4)]
    pages = [
        Observation(url="http://a/", title=f"Page {index}", screenshot=shot(index), elements=(button,))
        for index, button in enumerate(buttons)
    ]
    thoughts = [f"Thought {index}.\n</think>\n{CALL}" for index in range(4)]
    steps = [step(index, response=thoughts[index], observation=page) for index, page in enumerate(pages)]
    episode = trajectory(0, prompt=spec, steps=tuple(steps))
    sample = build_trajectory_sample(episode)
    assert [message.role for message in sample.messages] == ["system", *["user", "assistant"] * 4]
    assert sample.messages[0].content == render_system_prompt(InteractionMode.SET_OF_MARKS, version)
    assert sample.images == tuple(shot(index).sha256 for index in range(4))
    assert contents(sample, "assistant") == [f"{OPENING}Thought {index}.\n</think>\n{CALL}" for index in range(4)]
    turns = contents(sample, "user")
    for index, turn in enumerate(turns):
        assert turn.startswith(IMAGE) and turn.count(IMAGE) == 1
        assert f'[0] button "Button {index}"' in turn
        assert ("Task: Click the button." in turn) == (index == 0)
    assert turns[0] == render_step(episode, 0).messages[-1].content
    assert sample.step == 3


def record(options, example=None):
    example = example or Example(build_step_sample(trajectory(0), 1))

    def locate(sha256):
        return f"/{sha256[:4]}"

    if options.format == "openai":
        return build_openai_record(example, locate, options.unit)
    build = build_sharegpt_record if options.format in ("json", "jsonl") else build_messages_record
    return build(example, locate)


IMAGES = [f"/{shot(0).sha256[:4]}", f"/{shot(1).sha256[:4]}"]


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_sharegpt_records_are_those_of_prepare_with_an_id(form):
    plain = to_sharegpt(build_step_sample(trajectory(0), 1), lambda sha256: f"/{sha256[:4]}")
    assert record(ExportOptions(form)) == {"id": "train-0000-00000/1", **plain}
    assert plain["images"] == IMAGES


@pytest.mark.parametrize("form", ["messages", "hf"])
def test_messages_have_role_and_content(form):
    sample = build_step_sample(trajectory(0), 1)
    facts = record(ExportOptions(form))
    assert set(facts) == {"id", "messages", "images"}
    assert [turn["role"] for turn in facts["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert [turn["content"] for turn in facts["messages"]] == [message.content for message in sample.messages]
    assert facts["images"] == IMAGES


def test_openai_has_images_as_parts_and_only_the_last_reply_weighs():
    sample = build_step_sample(trajectory(0), 1)
    (messages,) = record(ExportOptions("openai")).values()
    assert messages[0] == {"role": "system", "content": sample.messages[0].content}
    image = {"type": "image_url", "image_url": {"url": IMAGES[0]}}
    text = {"type": "text", "text": sample.messages[1].content.removeprefix(IMAGE)}
    assert messages[1] == {"role": "user", "content": [image, text]}
    assert messages[2] == {"role": "assistant", "content": sample.messages[2].content, "weight": 0}
    assert messages[3]["content"][0]["image_url"]["url"] == IMAGES[1]
    assert messages[4] == {"role": "assistant", "content": sample.messages[4].content}
    example = Example(build_trajectory_sample(trajectory(0)))  # a whole trajectory learns every reply
    (messages,) = record(ExportOptions("openai", ExportUnit.TRAJECTORY), example).values()
    assert all(set(message) == {"role", "content"} for message in messages)


# The formats of samples; the others have whole trajectories.
OF_SAMPLES = [form for form in FORMATS.builtin if FORMATS.find(form).unit is None]


@pytest.mark.parametrize("form", OF_SAMPLES)
def test_a_pair_has_one_prompt_and_two_replies_and_placeholders_that_do_not_match_are_refused(form):
    sample = build_step_sample(trajectory(0), 1)
    facts = record(ExportOptions(form, objective=ExportObjective.DPO), Example(sample, rejected="No."))
    replies = [sample.messages[-1].content, "No."]
    if form == "openai":
        assert [turn["role"] for turn in facts["input"]["messages"]] == ["system", "user", "assistant", "user"]
        pair = [facts["preferred_output"], facts["non_preferred_output"]]
        assert pair == [[{"role": "assistant", "content": reply}] for reply in replies]
    elif form in ("json", "jsonl"):
        assert [turn["from"] for turn in facts["conversations"]] == ["human", "gpt", "human"]
        assert [facts["chosen"], facts["rejected"]] == [{"from": "gpt", "value": reply} for reply in replies]
    else:
        assert [turn["role"] for turn in facts["messages"]] == ["system", "user", "assistant", "user"]
        pair = [facts["chosen"], facts["rejected"]]
        assert pair == [{"role": "assistant", "content": reply} for reply in replies]
    with pytest.raises(ValueError, match="2 placeholders for 1 images"):
        record(ExportOptions(form), Example(sample.model_copy(update={"images": sample.images[:1]})))


@pytest.mark.parametrize("form", [form for form in OF_SAMPLES if form != "openai"])
@pytest.mark.parametrize("objective", ExportObjective)
def test_every_named_column_is_in_the_records(form, objective):
    options, sample = ExportOptions(form, objective=objective), build_step_sample(trajectory(0), 1)
    more = {ExportObjective.DPO: {"rejected": "No."}, ExportObjective.KTO: {"desirable": True}}
    example = Example(sample, **more.get(objective, {}))
    entry = FORMATS.find(form).build_dataset_info(objective)[TRAIN]
    facts = record(options, example)
    assert set(entry["columns"].values()) == set(facts) - {"id"}
    assert entry.get("ranking", False) == (objective is ExportObjective.DPO)
    file = FORMATS.find(form).file_name
    assert entry["file_name"] == file if file else entry["file_name"] in ("data", "train.jsonl")
    assert FORMATS.find("openai").build_dataset_info(objective) is None
    turns = facts[entry["columns"]["messages"]]
    assert {entry["tags"]["role_tag"], entry["tags"]["content_tag"]} == set(turns[0])


def test_openai_names_files_or_embeds_them(run, tmp_path):
    fill(run, trajectory(0))
    _, named = exported(run, format="openai")
    _, embedded = exported(run, format="openai", embed_images=True)
    path = run.screenshots / shot(0).sha256[:2] / f"{shot(0).sha256}.png"
    urls = [item[0]["messages"][1]["content"][0]["image_url"]["url"] for item in (named, embedded)]
    assert urls == [path.as_uri(), f"data:image/png;base64,{base64.b64encode(png(0)).decode()}"]
    _, copied = exported(run, tmp_path / "folder", format="openai", copy_images=tmp_path / "folder" / "images")
    assert copied == []
    line = json.loads((tmp_path / "folder" / "train.jsonl").read_text().splitlines()[0])
    copy = tmp_path / "folder" / "images" / f"{shot(0).sha256}.png"
    assert line["messages"][1]["content"][0]["image_url"]["url"] == copy.as_uri()
    assert copy.read_bytes() == png(0)


def test_by_default_the_runs_own_screenshots_are_named(run):
    fill(run, trajectory(0), trajectory(1, outcome=UNSOLVED))
    _, records = exported(run, format="messages")
    paths = [str(run.screenshots / shot(n).sha256[:2] / f"{shot(n).sha256}.png") for n in range(2)]
    assert [facts["images"] for facts in records] == [paths[:1], paths]
