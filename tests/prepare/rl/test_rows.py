"""Rows: which turns make one, what is the policy's in them, and the proof that prompts are the served ones."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.prepare.rl_builders import ANSWER, CALL, changed, changed_generation, sampled, served, talk
from tests.records.builders import trajectory
from webgym_cli.agent.client.policy import digest_tokens
from webgym_cli.agent.prompt import render_step
from webgym_cli.agent.tokens.tokens import IMAGE_PAD
from webgym_cli.errors import SettingsError
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.prepare.rl.rows import ServedTurn, build_rows, oldest_version, read_turns
from webgym_cli.records.sampling import PolicyVersion
from webgym_cli.records.trajectory import PromptSpec
from webgym_cli.testing.tiny_model_build import END


def turn(step, prompt, reply, *, images=(), first=0.0):
    logprobs = tuple(first - number / 8 for number in range(len(reply)))
    return ServedTurn(step, list(prompt), tuple(reply), logprobs, tuple(images), tuple((40, 32) for _ in images))


def rows_of(*given_turns, merge=True):
    return list(build_rows(given_turns, merge=merge))


def test_turns_of_one_conversation_are_one_row():
    (row,) = rows_of(turn(0, [1, 2, 3], [4, 5], first=-1), turn(1, [1, 2, 3, 4, 5, 6, 7], [8], first=-2))
    assert (row.steps, row.input_ids) == ([0, 1], [1, 2, 3, 4, 5, 6, 7, 8])
    assert (row.mask, row.logprobs) == ([0, 0, 0, 1, 1, 0, 0, 1], [-1, -1.125, -2])


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param([1, 2, 3, 4, 9, 6], id="the response has other ids in the history"),
        pytest.param([1, 2, 4, 5, 6], id="the window has moved on"),
        pytest.param([1, 2, 3, 4], id="shorter than the row"),
        pytest.param([0, 1, 2, 3, 4, 5, 6], id="the row stands later in it"),
    ],
)
def test_what_goes_on_otherwise_is_a_row_of_its_own(prompt):
    first, second = rows_of(turn(0, [1, 2, 3], [4, 5]), turn(1, prompt, [8], first=-2))
    assert (first.steps, first.input_ids, first.mask) == ([0], [1, 2, 3, 4, 5], [0, 0, 0, 1, 1])
    assert (second.steps, second.input_ids) == ([1], [*prompt, 8])
    assert (second.mask, second.logprobs) == ([0] * len(prompt) + [1], [-2])


def test_a_later_turn_goes_on_with_the_row_before_it():
    result = rows_of(turn(0, [1, 2], [3]), turn(1, [5, 6], [7]), turn(2, [5, 6, 7, 8], [9]), turn(3, [1, 2, 3], [4]))
    assert [row.steps for row in result] == [[0], [1, 2], [3]]
    assert [row.input_ids for row in result] == [[1, 2, 3], [5, 6, 7, 8, 9], [1, 2, 3, 4]]


def test_a_row_a_step_where_turns_are_not_merged():
    assert rows_of() == []
    result = rows_of(turn(0, [1, 2, 3], [4, 5]), turn(1, [1, 2, 3, 4, 5, 6, 7], [8]), merge=False)
    assert [(row.steps, sum(row.mask)) for row in result] == [([0], 2), ([1], 1)]


def test_the_same_ids_with_another_picture_are_another_row():
    first = turn(0, [1, 2], [3], images=["a"])
    assert [row.images for row in rows_of(first, turn(1, [1, 2, 3, 4, 5], [6], images=["a", "b"]))] == [("a", "b")]
    assert len(rows_of(first, turn(1, [1, 2, 3, 4, 5], [6], images=["b", "a"]))) == 2
    assert len(rows_of(first, turn(1, [1, 2, 3, 4, 5], [6]))) == 2


ids = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@st.composite
def conversations(draw):
    """Turns each of which may go on with all before it, or with anything."""
    calls, so_far = [], []
    for step in range(draw(st.integers(1, 6))):
        prompt = so_far + draw(ids) if draw(st.booleans()) else draw(ids)
        result = draw(ids)
        calls.append(turn(step, prompt, result, first=-step))
        so_far = [*prompt, *result]
    return calls


@given(conversations(), st.booleans())
def test_masks_and_logprobs_agree_and_nothing_sampled_is_lost(given_turns, merge):
    token_rows = list(build_rows(given_turns, merge=merge))
    assert [step for row in token_rows for step in row.steps] == [one.step for one in given_turns]
    for row in token_rows:
        assert (len(row.mask), sum(row.mask)) == (len(row.input_ids), len(row.logprobs))
        assert row.mask[0] == 0  # something always leads to the first token
        for one in given_turns[row.steps[0] : row.steps[-1] + 1]:
            assert row.input_ids[: len(one.prompt) + len(one.sampled)] == [*one.prompt, *one.sampled]
    pairs = ((token, row) for row in token_rows for token, mine in zip(row.input_ids, row.mask, strict=True) if mine)
    assert [token for token, _ in pairs] == [token for one in given_turns for token in one.sampled]
    values = [value for one in given_turns for value in one.logprobs]
    assert [value for row in token_rows for value in row.logprobs] == values


def test_a_conversation_with_tools_is_one_row_of_what_was_served(tokens):
    turns = read_turns(served(talk(0), tokens), tokens)
    (row,) = build_rows(turns, merge=True)
    assert row.steps == [0, 1]
    assert row.input_ids == [*turns[1].prompt, *sampled(tokens, ANSWER)]
    produced = [token for token, mine in zip(row.input_ids, row.mask, strict=True) if mine]
    assert produced == [*sampled(tokens, CALL), *sampled(tokens, ANSWER)]
    rest = [token for token, mine in zip(row.input_ids, row.mask, strict=True) if not mine]
    assert rest[-3:] == [*tokens.response_ids("<|im_start|>assistant\n")][-3:]


def test_ids_that_are_not_those_of_their_text_stay_and_part_the_rows(tokens):
    """The history shows the text's own ids; what is trained are the sampled ones."""
    spelt = [*(tokens.tokenizer.token_to_id(letter) for letter in "So"), *tokens.response_ids(CALL[2:])]
    spelt.append(tokens.tokenizer.token_to_id(END))
    assert tokens.tokenizer.decode(spelt, skip_special_tokens=True) == CALL
    assert spelt != sampled(tokens, CALL)
    turns = read_turns(served(talk(0), tokens, {0: spelt}), tokens)
    first, second = build_rows(turns, merge=True)
    assert first.input_ids == [*turns[0].prompt, *spelt]
    assert second.input_ids[-len(sampled(tokens, ANSWER)) :] == sampled(tokens, ANSWER)


def test_a_response_that_was_cut_has_no_stop_token_of_its_own(tokens):
    cut = tokens.response_ids(CALL)
    (row,) = build_rows(read_turns(served(talk(0), tokens, {0: cut}), tokens), merge=True)
    end = tokens.tokenizer.token_to_id(END)
    after = row.mask.index(1) + len(cut)
    assert (row.input_ids[after], row.mask[after]) == (end, 0)  # the template's, not the policy's
    assert sum(row.mask) == len(cut) + len(sampled(tokens, ANSWER))


def test_pictures_of_results_stand_at_their_placeholders(tokens):
    conversation = served(talk(0, CALL, CALL, ANSWER, pictures=(96, 64)), tokens)
    (row,) = build_rows(read_turns(conversation, tokens), merge=True)
    assert row.sizes == ((96, 32), (64, 32))
    assert row.images == render_step(conversation, 2).images
    pad = tokens.tokenizer.token_to_id(IMAGE_PAD)
    places = [place for place, token in enumerate(row.input_ids) if token == pad]
    assert len(places) == 3 + 2  # 96 x 32 and 64 x 32 at 32 x 32 a token
    assert not any(row.mask[place] for place in places)


def test_web_prompts_are_one_row_only_as_long_as_their_window_grows(tokens):
    web = served(trajectory(steps=5, prompt=PromptSpec(history_window=2)), tokens)
    token_rows = list(build_rows(read_turns(web, tokens), merge=True))
    assert [row.steps for row in token_rows] == [[0, 1, 2], [3], [4]]
    assert [len(row.images) for row in token_rows] == [3, 3, 3]
    alone = served(trajectory(steps=3, prompt=PromptSpec(history_window=0)), tokens)
    assert [row.steps for row in build_rows(read_turns(alone, tokens), merge=True)] == [[0], [1], [2]]


def test_thoughts_that_leave_the_history_part_the_rows(tokens):
    thoughtful = talk(0, f"<think>\nHm.\n</think>\n\n{CALL}", ANSWER)
    thoughtful = thoughtful.model_copy(update={"prompt": thoughtful.prompt.model_copy(update={"thinking": True})})
    token_rows = list(build_rows(read_turns(served(thoughtful, tokens), tokens), merge=True))
    assert [row.steps for row in token_rows] == [[0], [1]]
    assert sum(token_rows[0].mask) == len(sampled(tokens, thoughtful.steps[0].response))


def test_why_a_trajectory_has_no_rows(tokens):
    whole, sign = served(talk(0), tokens), tokens.tokenizer.token_to_id(IMAGE_PAD)
    few = whole.steps[0].generation.logprobs[1:]
    for wrong, reason in (
        (changed(whole, 1, prompt_digest="1" * 64), MaskReason.PROMPT_CHANGED),
        (whole.model_copy(update={"instruction": "Else?"}), MaskReason.PROMPT_CHANGED),
        (changed_generation(whole, 1, prompt_token_digest=digest_tokens([1, 2])), MaskReason.PROMPT_TOKENS_CHANGED),
        (served(talk(0), tokens, {0: [*sampled(tokens, CALL), sign]}), MaskReason.PLACEHOLDER_SAMPLED),
        (changed_generation(whole, 0, logprobs=few), MaskReason.LOGPROBS_UNUSABLE),
        (changed_generation(whole, 0, token_ids=(), logprobs=()), MaskReason.LOGPROBS_UNUSABLE),
    ):
        assert read_turns(wrong, tokens) is reason


@pytest.mark.parametrize("wrong", [-math.inf, math.nan, -9999.0, 0.5])
def test_impossible_log_probabilities_are_found(tokens, wrong):
    whole = served(talk(0), tokens)
    logprobs = (*whole.steps[1].generation.logprobs[:-1], wrong)
    assert read_turns(changed_generation(whole, 1, logprobs=logprobs), tokens) is MaskReason.LOGPROBS_UNUSABLE
    near = changed_generation(whole, 1, logprobs=(*logprobs[:-1], 1e-6))
    assert not isinstance(read_turns(near, tokens), MaskReason)


@pytest.mark.parametrize(
    ("missing", "name"),
    [
        ("token_ids", "token ids"),
        ("logprobs", "log-probabilities"),
        ("prompt_token_digest", "digest of the prompt's token ids"),
    ],
)
def test_what_the_server_did_not_tell_is_refused_with_the_setting(tokens, missing, name):
    with pytest.raises(SettingsError, match=rf"rollout\.policy: step 1 of train-0000-00000 has no {name} ") as raised:
        read_turns(changed_generation(served(talk(0), tokens), 1, **{missing: None}), tokens)
    assert "rollout.policy=vllm" in raised.value.hint


def test_the_version_of_a_row_is_the_oldest_of_its_steps(tokens):
    """A step of a server that did not tell counts for its iteration."""
    episode = served(talk(0, iteration=3), tokens)
    for numbers, steps, oldest in (((2, 3), [0, 1], 2), ((2, 3), [1], 3), ((None, 4), [0, 1], 3)):
        of = episode
        for index, number in enumerate(numbers):
            version = None if number is None else PolicyVersion(number=number, digest="d")
            of = changed_generation(of, index, policy_version=version)
        assert oldest_version(of, steps) == oldest
