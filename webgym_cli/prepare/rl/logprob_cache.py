"""Cache of log-probabilities of stored actions in the run, so that no policy scores an action twice."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from webgym_cli.agent.client.policy import digest_tokens
from webgym_cli.prepare.rl.states import TokenizedAction
from webgym_cli.util.files import append_lines, read_valid_lines
from webgym_cli.util.json_values import parse_object


def digest_action(action: TokenizedAction) -> str:
    """Return the SHA-256 of an action's tokens and the position where its response begins."""
    return hashlib.sha256(f"{digest_tokens(action.prompt)} {digest_tokens(action.response)}".encode()).hexdigest()


class LogprobCache:
    """Log-probabilities under one policy. Those under other policies stay in the file."""

    def __init__(self, path: Path, policy: str) -> None:
        """Read the file; damaged lines are scored again. Raises `OSError` if the file can't be read."""
        self._path = path
        self._policy = policy
        self._known: dict[bytes, array[float]] = {}
        for value in read_valid_lines(path, parse_object):
            with suppress(ValueError, KeyError, TypeError):  # a foreign line costs one request
                if value["policy"] == policy:
                    self._known[bytes.fromhex(value["action"])] = array("d", value["logprobs"])

    def __len__(self) -> int:
        """Return the number of known actions."""
        return len(self._known)

    def get(self, digest: str) -> array[float] | None:
        """Return the natural log-probability of each token of an action, including its stop token; None if unknown."""
        return self._known.get(bytes.fromhex(digest))

    def add(self, digest: str, logprobs: Sequence[float]) -> array[float]:
        """Store an action's log-probabilities durably and return them. Raises `StoreError` if writing fails."""
        line = {"policy": self._policy, "action": digest, "logprobs": list(logprobs)}
        # Written before use: a crash during an hour of scoring loses only the actions in progress.
        append_lines(self._path, json.dumps(line, separators=(",", ":")))
        return self._known.setdefault(bytes.fromhex(digest), array("d", logprobs))
