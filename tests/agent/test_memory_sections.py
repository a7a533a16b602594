import pytest
from hypothesis import given
from hypothesis import strategies as st

from webgym_cli.agent.memory_sections import Notes, notes

CALL = '<tool_call>\n{"name": "computer_use", "arguments": {"action": "answer", "text": "Memory: [1]"}}\n</tool_call>'
FULL = Notes(
    memory=("A costs 5 (shop.example)", "B is sold out"),
    progress={"find A": "done", "find B": "doing"},
    intention="find B",
    action="I open the list.",
)
AS_ASKED = """Memory: ["A costs 5 (shop.example)", "B is sold out"]
Progress: {"find A": "done", "find B": "doing"}
Intention: find B
Action: I open the list.
"""

SPELLINGS = {
    "as asked": AS_ASKED + CALL,
    "without a call": AS_ASKED,
    "after a thought": f"<think>Memory: [9]</think>\n{AS_ASKED}{CALL}",
    "after a thought that the prompt opened": f"Memory: [9]</think>\n\n{AS_ASKED}{CALL}",
    "in Markdown": """## Memory:
```json
[
  "A costs 5 (shop.example)",
  "B is sold out"
]
```
**Progress:** {"find A": "done",
 "find B": "doing"}
- **Intention**: "find B"
4. ACTION: I open the list.
""",
    "as lists": """Memory:
A costs 5 (shop.example)

B is sold out
Progress:
- find A: done
- find B: doing
Intention: `find B`
Action: I open the list.""",
}


@pytest.mark.parametrize("response", SPELLINGS.values(), ids=SPELLINGS)
def test_notes_are_read_however_they_are_written(response):
    assert notes(response) == FULL


@pytest.mark.parametrize("response", ["", "Hm.", CALL, f"<think>{AS_ASKED}", "the memory: is full", "Memory\n: []"])
def test_no_notes_are_empty(response):
    assert notes(response) == Notes()


def test_each_part_may_be_missing():
    assert notes('Progress: {"a": "open"}') == Notes(progress={"a": "open"})
    assert notes("Action: Go.\n" + CALL) == Notes(action="Go.")
    assert notes("Memory: []\nProgress: {}\nIntention:\nAction:") == Notes()


def test_the_first_of_its_name_counts():
    assert notes("Action: Go.\nAction: Stop.").action == "Go."


MALFORMED = {
    '["a", "b': ('["a", "b',),
    '{"a": 5, "b": ["c"]}': ("a: 5", 'b: ["c"]'),
    '["a", {"b": null}]': ("a", '{"b": null}'),
    "5": ("5",),
    "null": ("null",),
    '"one"': ("one",),
    "a\nb": ("a", "b"),
    '["\\ud800"]': ("?",),
    "[" * 10_000: ("[" * 10_000,),
}


@pytest.mark.parametrize(("text", "memory"), MALFORMED.items(), ids=lambda value: str(value)[:20])
def test_memory_that_is_no_list_of_texts_is_kept_as_text(text, memory):
    assert notes(f"Memory: {text}\nAction: Go.") == Notes(memory=memory, action="Go.")


def test_progress_that_is_no_object_is_kept_as_text():
    assert notes('Progress: ["a", "b"]').progress == {"a": "", "b": ""}
    assert notes("Progress: halfway").progress == {"halfway": ""}
    assert notes('Progress: {"a": {"b": 1}}').progress == {"a": '{"b": 1}'}


fragment = st.sampled_from(
    ["Memory:", "Progress:", "Intention:", "Action:", "\n", "[", "]", "{", "}", '"', ":", ",", "```", "<think>", "1"]
)


@given(st.text() | st.lists(fragment | st.text(max_size=3)).map("".join))
def test_no_text_breaks_the_reader(text):
    found = notes(text)
    for part in (*found.memory, *found.progress.keys(), *found.progress.values()):
        part.encode()
