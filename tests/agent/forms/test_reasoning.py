import pytest

from webgym_cli.agent.forms.reasoning import history_text, join_reasoning, strip_reasoning

# response -> (what may act, what is remembered), for a model that thinks first
THINKS_FIRST = {
    "opened in the prompt": ("So.\n</think>\n\nDone.", "\n\nDone.", "Done."),
    "opened in the response": ("<think>\nSo.\n</think>\n\nDone.", "\n\nDone.", "Done."),
    "never closed": ("So I would", "", ""),
    "opened and never closed": ("<think>So I would", "", ""),
    "two thoughts": ("<think>a</think>b<think>c</think>Done.", "Done.", "Done."),
    "closed twice": ("a</think>b</think>Done.", "Done.", "Done."),
    "a thought at the end": ("a</think>Done.<think>b", "Done.", "Done."),
    "nothing said": ("a</think>", "", ""),
    "nothing": ("", "", ""),
}
# the same for other models: only what they opened themselves is a thought
SPEAKS_FIRST = {
    "no thought": ("Done.", "Done.", "Done."),
    "a leading thought": (" <think>a</think>\nDone.", "\nDone.", " Done."),
    "never closed": ("<think>a", "", "<think>a"),
    "a later thought": ("b<think>a</think> Done.", "b<think>a</think> Done.", "bDone."),
    "closed, never opened": ("a</think>Done.", "a</think>Done.", "a</think>Done."),
}


@pytest.mark.parametrize(("response", "reply", "kept"), THINKS_FIRST.values(), ids=THINKS_FIRST)
def test_a_thinking_model_speaks_after_its_last_thought(response, reply, kept):
    assert strip_reasoning(response, thinking=True) == reply
    assert history_text(response, thinking=True) == kept


@pytest.mark.parametrize(("response", "reply", "kept"), SPEAKS_FIRST.values(), ids=SPEAKS_FIRST)
def test_another_model_thinks_only_where_it_says_so(response, reply, kept):
    assert strip_reasoning(response, thinking=False) == reply
    assert history_text(response, thinking=False) == kept


@pytest.mark.parametrize("content", ["Done.", "\n\nDone.", "", None])
def test_a_rejoined_response_says_what_its_content_said(content):
    whole = join_reasoning("So.", content, truncated=False)
    assert strip_reasoning(whole, thinking=True) == (content or "")
    assert strip_reasoning(whole, thinking=False) == (content or "")


def test_a_cut_thought_stays_open():
    assert join_reasoning("So I", None, truncated=True) == "<think>\nSo I"
    assert join_reasoning("\nSo.\n", "\n\nIt is", truncated=True) == "<think>\nSo.\n</think>\n\nIt is"
