"""A recording of Playwright's codegen becomes a demonstration on the help desk of docs/checks.md."""

import json
from pathlib import Path

import pytest

from tests.rollout.test_own_site import folder, stored, webgym
from webgym_cli.errors import UsageError
from webgym_cli.record.recording_file import read_recording

__all__ = ["folder"]

CODEGEN = Path(__file__).with_name("codegen.jsonl")
RIGHT = {"name": "click", "clicks": 2, "button": "right", "modifiers": ["Control", "Shift"]}
PLACE = {"selector": 'internal:role=link[name="A"i]', "pageGuid": "p"}


def read(path: Path, *lines: object) -> list[dict]:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    dumped = (one.action.model_dump(exclude_none=True, exclude={"here"}, mode="json") for one in read_recording(path))
    return list(dumped)


@pytest.mark.browser
def test_codegen_s_recording_is_replayed_and_trained(folder):
    record = ("record", "run", "-c", "site.yaml", "--from", str(CODEGEN), "--task")
    assert "close-printer" in webgym(folder, *record, "close-printer", "--dry-run")
    result = webgym(folder, *record, "close-printer")
    (kept,) = stored(folder)
    assert (kept["policy"], kept["outcome"]["reward"]) == ("oracle", 1.0), result
    assert [step["action"]["name"] for step in kept["steps"]] == ["type", "click", "click", "answer"]
    assert kept["steps"][0]["action"]["text"] == "Printer\n"
    assert "eligible steps\t4" in webgym(folder, "inspect-buffer", "run")
    assert len(list(folder.glob("run/recordings/*.jsonl"))) == 1
    missed = webgym(folder, *record, "urgent-chair", code=5)  # these actions close another ticket
    assert "not kept" in missed and len(stored(folder)) == 1
    kept_file = str(next(folder.glob("run/recordings/*.jsonl")))
    webgym(folder, "record", "run", "--from", kept_file, "--task", "close-printer")
    assert [one["seed"] for one in stored(folder)] == [0, 1]


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ({"name": "click", "clickCount": 2, "button": "right", "modifiers": 10}, RIGHT),
        ({"name": "check"}, {"name": "click"}),
        ({"name": "press", "key": "a", "modifiers": 2}, {"name": "key", "keys": ["Control", "a"]}),
        ({"name": "select", "options": ["2"]}, {"name": "select_option", "text": "2"}),
        ({"name": "setInputFiles", "files": ["/home/me/a.txt"]}, {"name": "upload_file", "text": "a.txt"}),
        ({"name": "hover"}, {"name": "hover"}),
    ],
)
def test_each_action_of_codegen(tmp_path, line, action):
    assert read(tmp_path / "a.jsonl", {**PLACE, **line}) == [action]


def test_what_belongs_together_is_one_action(tmp_path):
    other = {**PLACE, "selector": "#b"}
    lines = [
        {"browserName": "chromium"},
        {"name": "openPage", "url": "about:blank", "pageGuid": "p"},
        {"name": "navigate", "url": "http://a.test/", "pageGuid": "p"},
        {"name": "click", "clickCount": 1, **PLACE},
        {"name": "fill", "text": "x", **PLACE},
        {"name": "press", "key": "Tab", "modifiers": 0, **PLACE},
        {"name": "fill", "text": "y", **other},
        {"name": "press", "key": "Enter", "modifiers": 0, **other},
        {"name": "click", "clickCount": 0, **PLACE},
        {"name": "assertText", "text": "z", **PLACE},
        {"name": "closePage", "pageGuid": "p"},
    ]
    assert read(tmp_path / "a.jsonl", *lines) == [{"name": "type", "text": "x"}, {"name": "type", "text": "y\n"}]


def press(key, page, *popups):
    signals = [{"name": "popup", "popupPageGuid": popup} for popup in popups]
    return {"name": "press", "key": key, "selector": "#a", "pageGuid": page, "signals": signals}


OPENED = {"name": "openPage", "url": "chrome://newtab/", "pageGuid": "q"}
CLOSED = {"name": "closePage", "pageGuid": "q"}


@pytest.mark.parametrize(
    ("lines", "actions"),
    [
        ([press("a", "p"), press("b", "q"), press("c", "p"), press("d", "p"), press("e", "q")], "a b 0 c d 1 e"),
        ([press("a", "p", "q"), press("b", "p"), press("c", "q")], "a 0 b 1 c"),
        ([press("a", "p", "q", "r"), press("b", "q"), CLOSED, press("c", "r"), press("d", "p")], "a 1 b x 1 c 0 d"),
        ([press("a", "p", "q"), press("b", "q"), CLOSED, press("c", "p")], "a b x c"),
        ([press("a", "p", "q"), press("b", "p"), CLOSED, press("c", "p")], "a 0 b 1 x c"),
        (
            [press("a", "p"), OPENED, {"name": "navigate", "url": "http://b.test/", "pageGuid": "q"}],
            "a new http://b.test/",
        ),
        ([{**press("a", "p", "q"), "name": "click"}, {**press("", "q"), "name": "fill", "text": "t"}], "click t"),
    ],
)
def test_each_action_is_done_in_its_own_tab(tmp_path, lines, actions):
    short = {"close_tab": "x", "new_tab": "new", "click": "click"}
    seen = []
    for one in read(tmp_path / "a.jsonl", *lines):
        value = one.get("tab", one.get("text", one.get("url", one.get("keys", [short.get(one["name"])])[0])))
        seen.append(str(value))
    assert seen == actions.split()


@pytest.mark.parametrize(
    "line",
    [
        {"name": "dance"},
        {"name": "click", "selector": 3},
        {"name": "fill", "selector": "#a"},
        [1],
        {"action": {"name": "type"}},
    ],
)
def test_a_line_that_is_no_action_is_named(tmp_path, line):
    with pytest.raises(UsageError, match=r"a\.jsonl:2"):
        read(tmp_path / "a.jsonl", {"name": "check", **PLACE}, line)


@pytest.mark.parametrize("content", [None, "", '{"browserName": "chromium"}\n'])
def test_a_file_without_actions_is_refused(tmp_path, content):
    path = tmp_path / "a.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=r"a\.jsonl"):
        read_recording(path)
