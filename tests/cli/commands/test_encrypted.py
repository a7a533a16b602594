"""BrowseComp from its published form to the record, in a real browser: nothing stands in plain text in any file."""

import asyncio
import csv
import json
from functools import partial

import pytest

from tests.forked import webgym
from tests.tasks.test_encryption import CANARY, encrypt
from webgym_cli.util.files import read_json

QUESTION, ANSWER = "Which painter of Leiden had a mill in 1642?", "Rembrandt Harmenszoon"
PRIVATE = ("painter of Leiden", ANSWER)


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
async def test_an_evaluation_leaves_no_plain_text_in_any_file(tmp_path, mail, policy):
    call, policy.content = partial(asyncio.to_thread, webgym, cwd=tmp_path), 'exit(message="rembrandt HARMENSZOON.")'
    rows = [["problem", "answer", "problem_topic", "canary"], [encrypt(QUESTION), encrypt(ANSWER), "Art", CANARY]]
    with (tmp_path / "published.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    convert = ("tasks", "convert", "published.csv", "--format", "browsecomp", "-o", "comp.jsonl")
    await call(*convert, code=2)  # it names no start page
    await call(*convert, "--site", f"start={mail.url}/login")
    await call("tasks", "check", "comp.jsonl")
    changes = ("context_config.prompt_version=webrl", 'browser.private_hosts=["127.0.0.1"]', "judge.base_url=scripted")
    settings = [word for one in changes for word in ("-s", one)]
    await call("eval", policy.url, "-b", "comp.jsonl", "--repeats", "2", *settings, "-o", "own")
    request = json.dumps(policy.body["messages"])
    assert QUESTION in request and "encrypted:" not in request
    (record,) = (tmp_path / "own").glob("evaluation-*.json")
    assert (read_json(record)["successes"], read_json(record)["judged"]) == (2, 2)

    await call("report", "own")
    await call("inspect-buffer", "own", "--verify")
    await call("show", "own", "test-0000-00000", "--html", "episode.html")
    assert "encrypted:" in (tmp_path / "episode.html").read_text()
    await call("export-sharegpt", "own", "--split", "test", "--format", "webvoyager", "-o", "exported", code=1)
    trained = ("rollout", "run", "-s", "tasks.train=comp.jsonl", "--policy", policy.url, *settings)
    assert "its authors forbid to train" in (await call(*trained, code=2)).stderr
    agent = ("eval", policy.url, "-b", "comp.jsonl", *settings, "-s", "rollout.agent=./mine", "-o", "agent")
    assert "rollout.agent" in (await call(*agent, code=2)).stderr
    imported = await call("import", "run", "own", "copy", "--split", "train", "--json", code=None)
    assert "forbid to train" in imported.stdout + imported.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files for text in PRIVATE if text.encode() in path.read_bytes()] == []
