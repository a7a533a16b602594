"""`docs/events.md` names every event that the source sends, with its keys."""

import ast
import json
import re
from collections import defaultdict
from functools import cache

from tests.cli.runs import filled
from tests.docs.pages import ROOT
from tests.forked import webgym
from webgym_cli.records import events
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.records.dataset import Prepared, RlData
from webgym_cli.store.metrics import Block

PAGE = ROOT / "docs/events.md"
EVERYWHERE = {"event", "message", "bar", "done", "total", "facts", "transient"}
"""Keys that the page explains once."""
NAMED_BY_CALL = {"_event": 0, "make_event": 0, "rename_event": 1}
"""Functions, and which of their arguments is an event's name; the keywords are its keys."""
TYPES = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and "event" in vars(kind).get("__annotations__", {})
]
RECORDS = {"Block": Block, "Prepared": Prepared, "RlData": RlData, "Checkpoint": Checkpoint}
SAME = "the same"


def documented():
    """Return the keys of each event; of one name that stands several times, all of them."""
    facts, before = defaultdict(set), set()
    for line in PAGE.read_text().split("\n## Rows\n")[0].splitlines():
        cells = [cell.strip() for cell in line.split(" | ")]
        names = re.findall(r"`(\w+)`", cells[0]) if line.startswith("| `") else []
        if not names:
            continue
        keys = set(re.findall(r"`(\w+)`", cells[2])) | (before if cells[2].startswith(SAME) else set())
        for record in re.findall(r"\[(\w+)\]", f"{cells[1]} {cells[2]}"):
            keys |= set(RECORDS[record].model_fields)
        before = keys
        for name in names:
            facts[name] |= keys
    return dict(facts)


def constants(node, names):
    """Return what a class sets these attributes to: a scorer names its events so, the scoring engine sends them."""
    assigns = [part for part in node.body if isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant)]
    return [part.value.value for part in assigns if part.targets[0].id in names]


@cache
def sent():
    """Return file, event and literal keys of each event in the source."""
    sends = []
    for file in sorted((ROOT / "webgym_cli").rglob("*.py")):
        where = str(file.relative_to(ROOT))
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
                keys = {word.arg for word in node.keywords if word.arg}
                names = [word.value for word in node.keywords if word.arg == "event"]
                names += [node.args[at] for at in [NAMED_BY_CALL.get(called, 9)] if at < len(node.args)]
                parts = [
                    part
                    for name in names
                    for part in ([name.body, name.orelse] if isinstance(name, ast.IfExp) else [name])
                ]
                sends += [(where, name.value, keys) for name in parts if isinstance(name, ast.Constant)]
            if isinstance(node, ast.ClassDef) and where.endswith("/scorer.py"):
                sends += [(where, name, set()) for name in constants(node, {"stage", "event"})]
            if isinstance(node, ast.Dict):
                values = {
                    key.value: value
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant)
                }
                if isinstance(values.get("event"), ast.Constant):
                    sends.append((where, values["event"].value, set(values)))
    return sends


def test_every_event_of_the_source_is_on_the_page_with_its_keys():
    page = documented()
    assert [(file, name) for file, name, _ in sent() if name not in page] == []
    lacking = [(file, name, keys - EVERYWHERE - page[name]) for file, name, keys in sent()]
    assert [line for line in lacking if line[-1]] == []


def test_the_keys_of_each_type_are_those_of_the_page():
    page = documented()
    for kind in TYPES:
        pages = [page[name] for name in re.findall(r"`(\w+)`", kind.__doc__.split(":")[0])]
        assert all(kind.__required_keys__ - EVERYWHERE <= keys for keys in pages), kind.__name__
        assert set(kind.__annotations__) - EVERYWHERE <= set().union(*pages), kind.__name__


def test_the_summaries_have_every_key_of_the_page():
    keys = defaultdict(set)
    for _, name, given in sent():
        keys[name] |= given
    keys["generate"].add("out")  # the stage adds where it wrote
    page, names = documented(), ("judge", "score", "generate", "phase")
    assert {name: missing for name in names if (missing := page[name] - keys[name])} == {}


def test_every_event_of_the_page_is_sent():
    names = {name for _, name, _ in sent()}
    assert set(documented()) == names
    assert names >= {"plan", "trajectory", "judged", "judgement", "train", "prepare", "import"}


def test_the_events_of_a_command_have_the_keys_of_the_page(tmp_path):
    page, run = documented(), filled(tmp_path)
    for arguments in (["prepare", run.root], ["judge", run.root, "--all", "-s", "judge.base_url=scripted"]):
        result = webgym(*arguments, cwd=tmp_path)
        events = [json.loads(line) for line in result.stdout.splitlines()]
        assert events
        for event in events:
            unknown = set(event) - EVERYWHERE - page[event["event"]]
            assert not {key for key in unknown if not key.startswith("skipped_")}, event["event"]
