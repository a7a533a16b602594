"""Samples of prompts with few images, and of models that think."""

import errno
from dataclasses import replace
from unittest.mock import Mock

import pytest

from tests.prepare.buffer import WordTokens, settings
from tests.records.builders import digested, new_run, shot, step, store_images, trajectory
from webgym_cli.agent.actions.action_sets import ACTION_SETS
from webgym_cli.errors import StoreError
from webgym_cli.prepare.sft import convert
from webgym_cli.prepare.sft.convert import OPENING, TEMPLATE_TAIL, Converter
from webgym_cli.prepare.sft.filters import DropReason
from webgym_cli.records.sample import IMAGE, Message, Sample
from webgym_cli.records.trajectory import Generation, PromptSpec, PromptVersion
from webgym_cli.store.screenshots import ScreenshotStore

CALL = '<tool_call>{"name": "computer_use", "arguments": {"action": "go_back"}}</tool_call>'


class CharacterTokens(WordTokens):
    """One token a character, and a template that opens the thought, or does not."""

    def __init__(self, opens):
        self.opens = opens

    def prompt_ids(self, messages, sizes):
        return [0] * (100 * len(messages)) + (self.response_ids(OPENING) if self.opens else [])

    def response_ids(self, text):
        return [ord(character) for character in text]


def converted(tmp_path, built, index, *, tokens=None, **limits):
    run = new_run(tmp_path / "run")
    store_images(run, built)
    with_ = settings(*[f"algorithm_config.{name}={value}" for name, value in limits.items()])
    converter = Converter(with_, tokens or WordTokens(), ScreenshotStore(run.screenshots))
    return converter.convert(built, index), converter


@pytest.mark.parametrize("version", (PromptVersion.VANILLA, PromptVersion.COMPLETE))
@pytest.mark.parametrize(("window", "limit", "images"), [(4, 1, 1), (4, 3, 3), (4, None, 5), (0, 3, 1), (1, 3, 2)])
def test_a_sample_has_the_images_that_were_sent(tmp_path, version, window, limit, images):
    spec = PromptSpec(version=version, history_window=window, max_images=limit)
    sample, converter = converted(tmp_path, digested(trajectory(steps=6, prompt=spec)), 5)
    assert isinstance(sample, Sample)
    assert sample.images == tuple(shot(number).sha256 for number in range(6 - images, 6))
    assert sum(message.content.count(IMAGE) for message in sample.messages) == images
    words = sum(len(message.content.split()) for message in sample.messages[:-1])
    response = len(sample.messages[-1].content.split())
    assert sample.tokens == words + 40 * images + response + TEMPLATE_TAIL  # each image is 40 wide
    assert converter.shortened == 0


def test_an_image_that_was_not_sent_is_not_missed(tmp_path):
    episode = digested(trajectory(steps=6, prompt=PromptSpec(max_images=2)))
    run = new_run(tmp_path / "run")
    store_images(run, episode)
    store = ScreenshotStore(run.screenshots)
    for number in range(4):
        store.path(shot(number).sha256).unlink()
    assert isinstance(Converter(settings(), WordTokens(), store).convert(episode, 5), Sample)
    store.path(shot(4).sha256).unlink()
    assert Converter(settings(), WordTokens(), store).convert(episode, 5) is DropReason.IMAGE_MISSING


def test_an_image_on_a_share_that_fails_is_not_left_out(tmp_path, monkeypatch):
    def fail(path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr("webgym_cli.store.screenshots._read", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        converted(tmp_path, digested(trajectory(steps=2)), 1)


def test_a_picture_is_read_once(tmp_path, monkeypatch):
    episode = digested(trajectory(steps=6))
    run = new_run(tmp_path / "run")
    store_images(run, episode)
    store, read = ScreenshotStore(run.screenshots), []
    monkeypatch.setattr(store, "get", read.append)
    converter = Converter(settings("algorithm_config.cutoff_len=16"), WordTokens(), store)
    assert [converter.convert(episode, index) for index in range(6)] == [DropReason.TOO_LONG] * 6  # with every window
    assert sorted(read) == sorted(shot(number).sha256 for number in range(6))


def test_a_shortened_window_keeps_the_newest_images(tmp_path):
    episode = digested(trajectory(steps=6, prompt=PromptSpec(max_images=2)))
    whole, _ = converted(tmp_path, episode, 5)
    sample, converter = converted(tmp_path, episode, 5, cutoff_len=whole.tokens - 1)
    assert sample.images == whole.images == (shot(4).sha256, shot(5).sha256)
    assert len(sample.messages) < len(whole.messages)
    assert converter.shortened == 1


def test_a_set_that_renders_its_prompts_itself_has_no_smaller_window(tmp_path, monkeypatch):
    words = (Message(role="user", content="word " * 20),)
    own = replace(ACTION_SETS.find("vanilla"), template=None, render=lambda *_: (words, ()))
    monkeypatch.setitem(ACTION_SETS.registered, "own", own)
    render = Mock(side_effect=convert.render_step)
    monkeypatch.setattr(convert, "render_step", render)
    episode = digested(trajectory(steps=6, prompt=PromptSpec(version="own")))
    result, converter = converted(tmp_path, episode, 5, cutoff_len=16)
    assert (result, render.call_count, converter.over_long) == (DropReason.TOO_LONG, 1, 1)


THINKING = PromptSpec(thinking=True)
THOUGHT = f"So.\n</think>\n\n{CALL}"
RESPONSES = {
    "opened in the prompt": (THOUGHT, THOUGHT, True),
    "opened in the prompt, told apart by the server": (OPENING + THOUGHT, THOUGHT, True),
    "opened by the model": (OPENING + THOUGHT, OPENING + THOUGHT, False),
}


def thought(text, generated):
    sampled = [*CharacterTokens(False).response_ids(generated), 7]  # and a stop token
    return trajectory(prompt=THINKING, steps=(step(0, response=text, generation=Generation(token_ids=tuple(sampled))),))


@pytest.mark.parametrize(("text", "generated", "opens"), RESPONSES.values(), ids=RESPONSES)
def test_a_sample_of_a_thinking_model_opens_its_thought(tmp_path, text, generated, opens):
    """Prompt and response together are what was served, wherever the opening was written."""
    sample, _ = converted(tmp_path, thought(text, generated), 0, tokens=CharacterTokens(opens))
    assert isinstance(sample, Sample)
    assert sample.messages[-1].content == OPENING + THOUGHT
    assert sample.tokens == 200 + len(OPENING + THOUGHT) + TEMPLATE_TAIL


@pytest.mark.parametrize("generated", [f"So!\n</think>\n\n{CALL}", f"So.</think>{CALL}", f"o.\n</think>\n\n{CALL}"])
def test_a_thought_that_was_sampled_otherwise_is_told(tmp_path, generated):
    result, _ = converted(tmp_path, thought(THOUGHT, generated), 0, tokens=CharacterTokens(True))
    assert result is DropReason.RETOKENIZED
    plain = thought(generated, generated).model_copy(update={"prompt": PromptSpec()})  # a model that doesn't think
    sample, _ = converted(tmp_path, plain, 0, tokens=CharacterTokens(False))
    assert sample.messages[-1].content == generated
