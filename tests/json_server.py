"""Servers in a thread of their own that answer with JSON, and the completions that a chat server answers with."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler, bytes], tuple[int, Any]]
"""Takes a request and its body; returns the status and the value of the answer."""


@contextmanager
def serve_json(answer: Answer) -> Iterator[str]:
    """Give the address of a server for the time of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            status, value = answer(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def completion(text: str, **fields: Any) -> dict[str, Any]:
    """Return a chat completion of one choice. `fields`: further ones of the choice."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", **fields}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "policy", "choices": [choice]}
