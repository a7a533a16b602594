"""How probable policies found stored actions, kept in the run: an action is never scored twice by the same policy."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Sequence
from pathlib import Path

from webgym_cli.agent.policy import digest_tokens
from webgym_cli.prepare.rl.states import TokenizedAction
from webgym_cli.util.files import append_lines, read_lines


def digest_action(action: TokenizedAction) -> str:
    """Return the SHA-256 that stands for an action: of its tokens, and of where it begins among them."""
    return hashlib.sha256(f"{digest_tokens(action.prompt)} {digest_tokens(action.response)}".encode()).hexdigest()


class LogprobCache:
    """The log-probabilities that one policy gave. Those of other policies stay in the file."""

    def __init__(self, path: Path, policy: str) -> None:
        """Read what is known. Raises `OSError` where the file can't be read. A damaged line is scored again."""
        self._path = path
        self._policy = policy
        self._known: dict[bytes, array[float]] = {}
        for _, line in read_lines(path) if path.is_file() else ():
            self._take(line)

    def __len__(self) -> int:
        """Return how many actions are known."""
        return len(self._known)

    def get(self, digest: str) -> array[float] | None:
        """Return the natural log-probability of each of an action's tokens, its stop token included, if known."""
        return self._known.get(bytes.fromhex(digest))

    def add(self, digest: str, logprobs: Sequence[float]) -> array[float]:
        """Keep an action's log-probabilities, durably, and return them. Raises `StoreError` when the disk refuses."""
        line = {"policy": self._policy, "action": digest, "logprobs": list(logprobs)}
        # On disk before it is used: a crash in an hour of scoring loses at most the actions under way.
        append_lines(self._path, json.dumps(line, separators=(",", ":")))
        return self._known.setdefault(bytes.fromhex(digest), array("d", logprobs))

    def _take(self, line: bytes) -> None:
        try:
            value = json.loads(line)
            if value["policy"] == self._policy:
                self._known[bytes.fromhex(value["action"])] = array("d", value["logprobs"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return  # a torn or foreign line costs one request, no more
