"""`docs/events.md` names every event that the source sends, with its keys."""

import ast
import json
import re
from collections import defaultdict

import pytest

from tests.cli.runs import filled
from tests.docs.pages import ROOT
from tests.forked import webgym
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.records.dataset import Prepared
from webgym_cli.records.rl_data import RlData
from webgym_cli.store.blocklist import Block

PAGE = ROOT / "docs/events.md"
EVERYWHERE = {"event", "message", "bar", "done", "total", "facts", "transient"}
"""Keys that the page explains once."""
NAMED_BY_CALL = {"_event"}
"""Functions whose first argument is an event's name."""
RECORDS = {"Block": Block, "Prepared": Prepared, "RlData": RlData, "Checkpoint": Checkpoint}
SAME = "the same"


def documented():
    """Return the keys of each event; of one name that stands several times, all of them."""
    found, before = defaultdict(set), set()
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
            found[name] |= keys
    return dict(found)


def sent():
    """Yield file, event and literal keys of each event in the source."""
    for file in sorted((ROOT / "webgym_cli").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            where = str(file.relative_to(ROOT))
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in NAMED_BY_CALL:
                yield from ((where, name.value, set()) for name in node.args[:1] if isinstance(name, ast.Constant))
            if isinstance(node, ast.Dict):
                values = {
                    key.value: value
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant)
                }
                if isinstance(values.get("event"), ast.Constant):
                    yield where, values["event"].value, set(values)


SENT = list(sent())


@pytest.mark.parametrize(("file", "name", "keys"), SENT, ids=[f"{name} {file}" for file, name, _ in SENT])
def test_an_event_of_the_source_is_on_the_page_with_its_keys(file, name, keys):
    page = documented()
    assert name in page, f"{file}: docs/events.md lacks the event {name}"
    assert keys - EVERYWHERE - page[name] == set(), f"{file}: docs/events.md lacks keys of {name}"


def test_every_event_of_the_page_is_sent():
    assert set(documented()) == {name for _, name, _ in SENT}


def test_a_source_that_sends_is_found():
    assert {name for _, name, _ in SENT} >= {"plan", "trajectory", "judged", "judgement", "train", "prepare", "import"}


def test_the_events_of_a_command_have_the_keys_of_the_page(tmp_path):
    page, run = documented(), filled(tmp_path)
    for arguments in (["prepare", run.root], ["judge", run.root, "--all", "-s", "judge.base_url=scripted"]):
        said = webgym(*arguments, cwd=tmp_path)
        events = [json.loads(line) for line in said.stdout.splitlines()]
        assert (said.returncode, bool(events)) == (0, True), said.stderr
        for event in events:
            unknown = set(event) - EVERYWHERE - page[event["event"]]
            assert not {key for key in unknown if not key.startswith("skipped_")}, event["event"]
