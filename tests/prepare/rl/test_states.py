"""Stored actions as tokens between two states: the served ids where a server told them, else those of the text."""

from tests.prepare.rl_builders import ANSWER, CALL, changed, changed_generation, sampled, served, talk
from webgym_cli.agent.client.policy import digest_tokens
from webgym_cli.agent.prompt import render, render_step
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.prepare.rl.rows import render_last_state, tokenize_actions


def test_the_stop_token_is_the_template_s(tokens, tiny_model_dir):
    assert tokens.stop == tokens.tokenizer.token_to_id("<|im_end|>")
    tiny = ModelTokens(str(tiny_model_dir))
    assert tiny.tokenizer.id_to_token(tiny.stop) == "<|im_end|>"


def test_what_was_sampled_keeps_its_ids(tokens):
    """Other ids of the same text stay as they were sampled; a reply that met its limit has no stop token."""
    pieces = [tokens.response_ids(letter)[0] for letter in CALL]
    trajectory = served(talk(0), tokens, {0: [*pieces, tokens.stop], 1: tokens.response_ids(ANSWER)})
    first, last = tokenize_actions(trajectory, tokens)
    assert first.response == (*pieces, tokens.stop)
    assert (first.content_length, last.content_length) == (len(pieces), len(last.response))
    assert (first.tokenized, last.tokenized) == (False, False)
    for index, action in enumerate((first, last)):
        assert action.step == index
        assert digest_tokens(action.prompt) == trajectory.steps[index].generation.prompt_token_digest


def test_the_state_after_is_the_next_prompt_and_the_last_page_once_more(tokens):
    trajectory = served(talk(0, CALL, CALL, ANSWER), tokens)
    first, second, last = tokenize_actions(trajectory, tokens)
    assert (first.after, second.after) == (second.prompt, last.prompt)
    text = tokens.tokenizer.decode(last.after, skip_special_tokens=False)
    assert text.startswith(tokens.tokenizer.decode([*last.prompt, *last.response], skip_special_tokens=False))
    assert text.endswith("<|im_start|>assistant\n")
    last_page = trajectory.steps[-1].observation
    once_more = render(trajectory.prompt, trajectory.instruction, "", trajectory.steps, last_page)
    assert last.after == render_last_state(trajectory, tokens).ids == tokens.prompt_ids(once_more.messages, [])
    assert last.longest == len(last.after)


def test_what_nobody_sampled_is_tokenized(tokens):
    """Demonstrations, and imports whose prompts nobody digested."""
    shown = talk(0)
    for action, text in zip(tokenize_actions(shown, tokens), (CALL, ANSWER), strict=True):
        assert action.response == tuple(sampled(tokens, text))
        assert (action.content_length, action.tokenized) == (len(action.response) - 1, True)
        assert action.prompt == tokens.prompt_ids(render_step(shown, action.step).messages, [])
    untold = changed_generation(served(shown, tokens), 1, prompt_token_digest=None)
    assert [action.tokenized for action in tokenize_actions(untold, tokens)] == [False, True]
    silent, _ = tokenize_actions(changed(talk(0), 0, response=""), tokens)
    assert (silent.response, silent.content_length) == ((tokens.stop,), 0)


def test_why_actions_can_not_be_told(tokens):
    trajectory = served(talk(0), tokens)
    other = changed_generation(trajectory, 1, prompt_token_digest=digest_tokens([1]))
    pad = tokens.placeholder
    assert tokenize_actions(other, tokens) is MaskReason.PROMPT_TOKENS_CHANGED
    assert tokenize_actions(changed(trajectory, 1, prompt_digest="1" * 64), tokens) is MaskReason.PROMPT_CHANGED
    assert tokenize_actions(served(talk(0), tokens, {0: [pad]}), tokens) is MaskReason.PLACEHOLDER
    assert tokenize_actions(served(talk(0, CALL, ANSWER, pictures=(96,)), tokens), tokens) is MaskReason.PICTURES
