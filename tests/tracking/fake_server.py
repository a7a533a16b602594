"""Stands for the W&B server, as far as a run needs it: keeps what a run's history gets, at the places it is sent to."""

from __future__ import annotations

import gzip
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                server.answer(self)

            do_PUT = do_POST
            do_GET = do_POST

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def history(self, run: str) -> list[dict[str, Any]]:
        """Return what was logged to a run, without wandb's own values but the step."""
        rows = map(json.loads, self.runs.get(run, []))
        return [{key: value for key, value in row.items() if key == "_step" or key[0] != "_"} for row in rows]

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.down:
            status, answer = 403, {"errors": [{"message": "permission denied"}]}
        elif request.path.endswith("/graphql"):
            status, answer = 200, {"data": self._answer_query(json.loads(body))}
        elif request.path.endswith("/file_stream"):
            self._stream(request.path.split("/")[-2], json.loads(body))
            status, answer = 200, {"exitcode": None, "limits": {}}
        else:
            status, answer = 200, {}
        content = json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

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
