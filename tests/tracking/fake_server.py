"""Stands for the W&B server, as far as a run needs it: keeps what a run's history gets, at the places it is sent to."""

from __future__ import annotations

import gzip
import json
import re
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.json_server import serve_json

TEAM = {"id": "e", "name": "team"}


class FakeServer:
    """A server for the time of the block. `down` makes it refuse."""

    def __init__(self) -> None:
        self.runs: dict[str, list[str]] = {}
        """The lines of each run's history."""
        self.names: dict[str, dict[str, Any]] = {}
        """What each run was last said to be: the variables of its newest UpsertBucket."""
        self.operations: list[str] = []
        """Every question that was asked, in order."""
        self.down = False

    def __enter__(self) -> FakeServer:
        self._serving = serve_json(self._answer)
        self.url = self._serving.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._serving.__exit__(None, None, None)

    def history(self, run: str) -> list[dict[str, Any]]:
        """Return what was logged to a run, without wandb's own values but the step."""
        rows = map(json.loads, self.runs.get(run, []))
        return [{key: value for key, value in row.items() if key == "_step" or key[0] != "_"} for row in rows]

    def _answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.down:
            return 403, {"errors": [{"message": "permission denied"}]}
        if request.path.endswith("/graphql"):
            return 200, {"data": self._answer_query(json.loads(body))}
        if request.path.endswith("/file_stream"):
            self._stream(request.path.split("/")[-2], json.loads(body))
            return 200, {"exitcode": None, "limits": {}}
        return 200, {}

    def _stream(self, run: str, body: dict[str, Any]) -> None:
        sent = body.get("files", {}).get("wandb-history.jsonl")
        if sent:
            lines = self.runs.setdefault(run, [])
            lines[sent["offset"] : sent["offset"] + len(sent["content"])] = sent["content"]

    def _answer_query(self, body: dict[str, Any]) -> dict[str, Any]:
        match = re.search(r"(?:query|mutation)\s+(\w+)", body["query"])
        name, variables = match[1] if match else "", body.get("variables") or {}
        self.operations.append(name)
        if name == "UpsertBucket":
            return self._upserted(variables)
        if name == "RunResumeStatus":
            return {"model": {"id": "p", "name": "rl", "entity": TEAM, "bucket": self._bucket(variables["name"])}}
        if name == "Viewer":
            teams: dict[str, list[Any]] = {"edges": []}
            return {"viewer": {"id": "u", "entity": "team", "username": "u", "flags": "{}", "teams": teams}}
        if name == "CreateRunFiles":
            files = [{"name": file, "uploadUrl": f"{self.url}/upload/{file}"} for file in variables["files"]]
            return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
        return {"serverInfo": {"features": []}}

    def _upserted(self, variables: dict[str, Any]) -> dict[str, Any]:
        run = variables["name"]
        new = run not in self.names
        self.names[run] = {**self.names.get(run, {}), **{key: value for key, value in variables.items() if value}}
        self.runs.setdefault(run, [])
        project = {"id": "p", "name": variables["project"], "entity": TEAM}
        facts = {"id": "r", "name": run, "displayName": variables.get("displayName") or run, "description": None}
        bucket = {**facts, "config": "{}", "sweepName": None, "project": project}
        return {"upsertBucket": {"bucket": {**bucket, "historyLineCount": len(self.runs[run])}, "inserted": new}}

    def _bucket(self, run: str) -> dict[str, Any] | None:
        if run not in self.names:
            return None
        lines = self.runs[run]
        counts = {"historyLineCount": len(lines), "eventsLineCount": 0, "logLineCount": 0}
        tails = {"historyTail": json.dumps(lines[-1:]), "eventsTail": "[]"}
        facts = {"id": "r", "name": run, "displayName": run, "config": "{}", "summaryMetrics": "{}", "tags": []}
        return {**facts, **counts, **tails, "wandbConfig": '{"t": {}}'}
