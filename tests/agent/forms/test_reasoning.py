from tests.tables import each
from webgym_cli.agent.forms.reasoning import history_text, join_reasoning, strip_reasoning

# whether the model thinks first, response -> what may act, what is remembered; of a model that does not, only what it
# opened itself is a thought
RESPONSES = {
    "opened in the prompt": (True, "So.\n</think>\n\nDone.", "\n\nDone.", "Done."),
    "opened in the response": (True, "<think>\nSo.\n</think>\n\nDone.", "\n\nDone.", "Done."),
    "never closed": (True, "So I would", "", ""),
    "opened and never closed": (True, "<think>So I would", "", ""),
    "two thoughts": (True, "<think>a</think>b<think>c</think>Done.", "Done.", "Done."),
    "closed twice": (True, "a</think>b</think>Done.", "Done.", "Done."),
    "a thought at the end": (True, "a</think>Done.<think>b", "Done.", "Done."),
    "nothing said": (True, "a</think>", "", ""),
    "nothing": (True, "", "", ""),
    "no thought of another model": (False, "Done.", "Done.", "Done."),
    "a leading thought of another": (False, " <think>a</think>\nDone.", "\nDone.", " Done."),
    "opened and never closed by another": (False, "<think>a", "", "<think>a"),
    "a later thought of another": (False, "b<think>a</think> Done.", "b<think>a</think> Done.", "bDone."),
    "closed, never opened by another": (False, "a</think>Done.", "a</think>Done.", "a</think>Done."),
}


@each(("thinking", "response", "reply", "kept"), RESPONSES.values())
def test_what_acts_is_what_a_model_says_after_its_thoughts(thinking, response, reply, kept):
    assert strip_reasoning(response, thinking=thinking) == reply
    assert history_text(response, thinking=thinking) == kept


@each("content", ["Done.", "\n\nDone.", "", None])
def test_a_rejoined_response_says_what_its_content_said(content):
    whole = join_reasoning(content, "So.", truncated=False)
    assert {strip_reasoning(whole, thinking=thinking) for thinking in (True, False)} == {content or ""}


def test_a_cut_thought_stays_open():
    assert join_reasoning(None, "So I", truncated=True) == "<think>\nSo I"
    assert join_reasoning("\n\nIt is", "\nSo.\n", truncated=True) == "<think>\nSo.\n</think>\n\nIt is"
