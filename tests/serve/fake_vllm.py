"""Speaks the HTTP of vLLM 0.32's server as far as we use it, without a model: its "weights" are a file's bytes.

Run in place of the real one. It does what `behave.json` beside the model's folder says at that moment:
`sleep` or `wake`: "refuses", "hangs" or "dies"; `reload`: "stale" (answers 200, loads nothing); `adapter`: "refuses"
or "ignored" (answers like the model without it); `answer`: "hangs"; `metrics`: what `/metrics` says.
"""

import hashlib
import itertools
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

FOREVER = threading.Event()
DROPPED = "undefined"


class Engine:
    """What the real engine keeps: weights, and which of its memory is asleep."""

    def __init__(self, argv):
        self.argv = argv
        self.folder = Path(argv[argv.index("--model") + 1])
        self.behaviour = self.folder.parent / "behave.json"
        self.weights = self.read(self.folder)
        self.kept = ""
        self.asleep = set()
        self.awake = threading.Event()
        self.awake.set()
        self.calls = []
        after = argv.index("--lora-modules") + 1 if "--lora-modules" in argv else len(argv)
        named = itertools.takewhile(lambda word: not word.startswith("--"), argv[after:])
        self.adapters = {name: self.read(folder) for name, folder in (word.split("=", 1) for word in named)}

    def read(self, folder):
        files = [Path(folder) / name for name in ("adapter_model.safetensors", "model.safetensors")]
        return hashlib.sha256(next(file for file in files if file.is_file()).read_bytes()).hexdigest()

    def change_adapters(self, path, body):
        name = body["lora_name"]
        if "--enable-lora" not in self.argv or os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING") != "1":
            return 404, {"detail": "Not Found"}
        if path == "/v1/unload_lora_adapter":
            return (200, "removed") if self.adapters.pop(name, None) else (404, {"error": {"message": "unknown"}})
        if name in self.adapters or self.misbehave("adapter") == "refuses":
            return 400, {"error": {"message": "The lora adapter can't be loaded."}}
        self.adapters[name] = self.read(body["lora_path"])
        return 200, "added"

    def misbehave(self, about):
        """Do what was asked for and return True when the request is to be refused."""
        result = json.loads(self.behaviour.read_text()).get(about) if self.behaviour.is_file() else None
        if result == "hangs":
            FOREVER.wait()
        if result == "dies":
            os._exit(1)
        return result

    def sleep(self, query):
        level = int(query.get("level", ["1"])[0])
        if not 0 <= level <= 2 or query.get("mode", ["abort"])[0] not in ("abort", "wait", "keep"):
            return 400, {"error": {"message": "Input should be less than or equal to 2"}}
        if self.misbehave("sleep") == "refuses" or "--enable-sleep-mode" not in self.argv:
            return 500, {"error": {"message": "Sleep mode is not enabled."}}
        self.awake.clear()
        if level:
            self.asleep = {"weights", "kv_cache"}
            self.kept = self.weights if level == 1 else DROPPED
            self.weights = DROPPED
        return 200, {"status": "sleeping", "level": level}

    def wake_up(self, query):
        tags = query.get("tags")
        if self.misbehave("wake") == "refuses":
            return 500, {"error": {"message": "EngineCore encountered an issue."}}
        if tags is None or "weights" in tags:
            self.weights = self.kept
        self.asleep -= set(tags or self.asleep)
        if not self.asleep:
            self.awake.set()
        return 200, {"status": "sleeping" if self.asleep else "awake", "tags": tags}

    def rpc(self, body):
        if "weights" in self.asleep:
            return 500, {"error": {"message": "CUDA error: an illegal memory access was encountered"}}
        assert body["method"] == "reload_weights"
        if self.misbehave("reload") != "stale":
            self.weights = self.read(body["kwargs"]["weights_path"])
        return 200, {"results": [None]}

    def answer(self, model):
        """Return what these weights say to a known prompt, with the adapter of this name if it is one's."""
        if self.misbehave("adapter") == "ignored":
            model = ""
        ids = list(hashlib.sha256((self.weights + self.adapters.get(model, "")).encode()).digest()[:4])
        return ids, [-number / 100 for number in ids]

    def post(self, path, query, body):
        """Return status and JSON of a POST."""
        if path == "/sleep":
            return self.sleep(query)
        if path == "/wake_up":
            return self.wake_up(query)
        if path == "/collective_rpc":
            return self.rpc(body)
        if path == "/pause":
            self.awake.clear()
            return 200, {"status": "paused"}
        if path == "/resume":
            self.awake.set()
            return 200, {"status": "resumed"}
        if path == "/reset_prefix_cache":
            return 200, {"success": True}
        if path in ("/reset_mm_cache", "/reset_encoder_cache"):
            return 200, None
        if path == "/weight_checker":
            return 200, {"checksums": {"dp0:pp0:pcp0:tp0:all": self.weights}}
        if path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
            return self.change_adapters(path, body)
        if path in ("/v1/completions", "/v1/chat/completions"):
            self.awake.wait()
            self.misbehave("answer")
            if body["model"] not in {"policy", *self.adapters}:
                return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
            return 200, {"choices": [self.choice(path, body["model"])]}
        return 404, {"detail": "Not Found"}

    def choice(self, path, model):
        ids, logprobs = self.answer(model)
        if path == "/v1/completions":
            return {"token_ids": ids, "logprobs": {"token_logprobs": logprobs}}
        logprobs = {"content": [{"logprob": value} for value in logprobs]}
        return {"message": {"role": "assistant", "content": "x"}, "token_ids": ids, "logprobs": logprobs}

    def get(self, path):
        """Return status and JSON of a GET; `/fake` is ours."""
        if path == "/health":
            return 200, None
        if path == "/is_sleeping":
            return 200, {"is_sleeping": not self.awake.is_set() or bool(self.asleep)}
        if path == "/metrics" and (text := self.misbehave("metrics")):
            return 200, text
        facts = {"pid": os.getpid(), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "argv": self.argv}
        facts |= {"calls": self.calls, "adapters": sorted(self.adapters)}
        return (200, facts) if path == "/fake" else (404, "" if path == "/metrics" else {"detail": "Not Found"})


class Handler(BaseHTTPRequestHandler):
    """One request."""

    engine = None

    def do_GET(self):
        self.reply(*self.engine.get(urlsplit(self.path).path))

    def do_POST(self):
        at = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.engine.calls.append(self.path)
        self.reply(*self.engine.post(at.path, parse_qs(at.query), json.loads(raw) if raw else None))

    def reply(self, status, body):
        content = b"" if body is None else body.encode() if self.path == "/metrics" else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    Handler.engine = Engine(sys.argv[1:])
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
