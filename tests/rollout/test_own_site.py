"""The help desk of docs/checks.md: set up, done by its expert and scored by its check, in a real browser."""

import json
import re
import sqlite3
import threading

import pytest

from tests import forked
from tests.docs.pages import ROOT
from tests.environments.sites.desk_app import serve

pytestmark = pytest.mark.browser


def read_blocks() -> dict[str, str]:
    page = (ROOT / "docs/checks.md").read_text()
    return {kind: re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[0] for kind in ("python", "json", "yaml")}


@pytest.fixture
def folder(tmp_path):
    """A folder with the files of the page, beside a running help desk."""
    server = serve(str(tmp_path / "desk.db"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    blocks = read_blocks()
    (tmp_path / "desk.py").write_text(blocks["python"])
    (tmp_path / "site.yaml").write_text(blocks["yaml"])
    (tmp_path / "tasks.jsonl").write_text(blocks["json"].replace(":8000", f":{server.server_port}"))
    yield tmp_path
    server.shutdown()
    server.server_close()


def webgym(folder, *arguments: str, code: int = 0) -> str:
    done = forked.webgym(*arguments, cwd=folder, code=code)
    return done.stdout + done.stderr


def stored(folder) -> list[dict]:
    files = sorted(folder.glob("run/train_trajectories/*/part-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_site_of_one_s_own_is_set_up_done_and_checked_in_few_lines(folder):
    assert len(read_blocks()["python"].splitlines()) < 60
    rollout = ("rollout", "run", "-c", "site.yaml", "--policy", "oracle", "-s", "rollout.max_attempts=1")
    lines = (folder / "tasks.jsonl").read_text()
    (folder / "bad.jsonl").write_text(lines.replace('"check": "ticket"', '"check": "tickets"'))
    refused = webgym(folder, "tasks", "check", "bad.jsonl", "-c", "site.yaml", code=2)
    assert "task close-printer: there is no check 'tickets'; loaded: ticket" in refused
    assert "2 tasks tried" in webgym(folder, "tasks", "check", "tasks.jsonl", "-c", "site.yaml", "--try")
    (folder / "done.jsonl").write_text(lines.replace('"status": "closed"', '"status": "open"'))
    early = webgym(folder, "tasks", "check", "done.jsonl", "-c", "site.yaml", "--try", code=2)
    assert "task close-printer: the check ticket gives a success before any work" in early
    webgym(folder, *rollout, "--episodes", "4")
    episodes = stored(folder)
    assert [one["outcome"]["reward"] for one in episodes] == [1.0] * 4
    for one in episodes:
        (score,) = one["outcome"]["scores"]
        assert (score["source"], score["detail"], score["extras"]) == ("check", "ticket", {"others_changed": 0.0})
        assert list(one["final"]["state"]) == ["tenant"] and "Status:" in one["final"]["text"]
        assert one["task"]["id"] in ("close-printer", "urgent-chair") and "cookies" not in json.dumps(one)
    with sqlite3.connect(folder / "desk.db") as database:
        (tenants,) = database.execute("SELECT count(DISTINCT tenant) FROM tickets").fetchone()
        assert tenants == 8, "four of the episodes, and two of each trial"
        tenant = episodes[0]["final"]["state"]["tenant"]
        database.execute("UPDATE tickets SET status = 'open' WHERE tenant = ?", (tenant,))
    assert "scored 0" in webgym(folder, "score", "run", "--check")
    again = webgym(folder, "score", "run", "--check", "--all")
    assert "3 solved" in again and "3 of 4 as before" in again
    _fail_in_each_way(folder, rollout)


def _fail_in_each_way(folder, rollout) -> None:
    """Each episode of a check that fails is an environment error, and the command says where."""
    code = (folder / "desk.py").read_text()
    ways = {"nan": "float('nan')", "live": "context.page.get_by_role('button').count() / 2"}
    for number, (way, value) in enumerate(ways.items(), 5):
        body = f"return {value}\n    with database() as tickets:\n        query"
        (folder / "desk.py").write_text(code.replace("with database() as tickets:\n        query", body))
        result = webgym(folder, *rollout, "--episodes", str(number))
        outcome = stored(folder)[-1]["outcome"]
        if way == "live":
            assert outcome["reward"] == 1.0, result
        else:
            assert (outcome["reward"], outcome["failure"]) == (None, "environment_error")
            assert "the check ticket failed" in outcome["failure_detail"] and "desk.py:" in outcome["failure_detail"]
    assert "can't be scored again" in webgym(folder, "score", "run", "--check", "--all")
    (folder / "desk.py").write_text(code.replace('@check("ticket")', '@check("tickets")'))
    refused = webgym(folder, *rollout, "--episodes", "9", "--dry-run", code=2)
    assert "there is no check 'ticket'; loaded: tickets" in refused
