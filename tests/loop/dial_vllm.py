"""The server of `tests/serve/fake_vllm.py` as a policy that turns the dial, and says which weights and process answer.

Run in place of vLLM. It answers every second question well, and after the first `FREE` does what `behave.json` says of
the `dial`. `refuse_start` beside the interpreter: it does not start.
"""

import itertools
import os
import sys
from http.server import ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.extending.dial_policy import answer
from tests.serve.fake_vllm import Engine, Handler
from webgym_cli.agent.tokens.tokens import ModelTokens

FREE = 8


class DialEngine(Engine):
    """Its weights are a file's bytes, too."""

    def __init__(self, argv):
        super().__init__(argv)
        self.tokens, self.numbers = ModelTokens(str(self.folder)), itertools.count()

    def get(self, path):
        return (200, {"version": "0.32.0"}) if path == "/version" else super().get(path)

    def post(self, path, query, body):
        if path != "/v1/chat/completions" or "Turn it to" not in str(body["messages"]):
            return super().post(path, query, body)
        self.awake.wait()
        if (number := next(self.numbers)) >= FREE:
            self.misbehave("dial")
        beside = f"weights {self.weights} process {os.getpid()}\n"
        return 200, answer(self.tokens, body, solves=number % 2 == 0, beside=beside)


if __name__ == "__main__":
    Handler.engine = DialEngine(sys.argv[1:])
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
