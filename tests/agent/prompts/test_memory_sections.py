from hypothesis import given
from hypothesis import strategies as st

from tests.tables import each
from webgym_cli.agent.prompts.memory_prompt import MemorySections, read_sections

CALL = '<tool_call>\n{"name": "computer_use", "arguments": {"action": "answer", "text": "Memory: [1]"}}\n</tool_call>'
FULL = MemorySections(
    memory=("A costs 5 (shop.example)", "B is sold out"),
    progress={"find A": "done", "find B": "doing"},
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


@each("response", SPELLINGS.values())
def test_notes_are_read_however_they_are_written(response):
    assert read_sections(response) == FULL


@each("response", ["", "Hm.", CALL, f"<think>{AS_ASKED}", "the memory: is full", "Memory\n: []"])
def test_no_notes_are_empty(response):
    assert read_sections(response) == MemorySections()


@each(
    ("text", "parts"),
    [
        ('Progress: {"a": "open"}', {"progress": {"a": "open"}}),
        ('Progress: ["a", "b"]', {"progress": {"a": "", "b": ""}}),
        ("Progress: halfway", {"progress": {"halfway": ""}}),
        ('Progress: {"a": {"b": 1}}', {"progress": {"a": '{"b": 1}'}}),
        ("Action: Go.\n" + CALL, {"action": "Go."}),
        ("Action: Go.\nAction: Stop.", {"action": "Go."}),
        ("Memory: []\nProgress: {}\nIntention:\nAction:", {}),
    ],
)
def test_each_part_may_be_missing_or_have_another_form(text, parts):
    assert read_sections(text) == MemorySections(**parts)


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


@each(("text", "memory"), MALFORMED.items())
def test_memory_that_is_no_list_of_texts_is_kept_as_text(text, memory):
    assert read_sections(f"Memory: {text}\nAction: Go.") == MemorySections(memory=memory, action="Go.")


fragment = st.sampled_from(
    ["Memory:", "Progress:", "Intention:", "Action:", "\n", "[", "]", "{", "}", '"', ":", ",", "```", "<think>", "1"]
)


@given(st.text() | st.lists(fragment | st.text(max_size=3)).map("".join))
def test_no_text_breaks_the_reader(text):
    memory_sections = read_sections(text)
    for part in (*memory_sections.memory, *memory_sections.progress.keys(), *memory_sections.progress.values()):
        part.encode()
