"""How the processes of `make test` share the tests: files whole, the longest first, by the seconds measured before."""

import json
from collections import defaultdict
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[1]
SECONDS = Path(__file__).with_name("seconds.json")
"""Seconds of each file that takes `LEAST` or more: `SECONDS_OF_TESTS=1` has pytest write those of the files it ran."""
LEAST = 5.0
SHARED = "files that use one vLLM server, one trained model or a role's libraries"


class Shares(LoadScopeScheduling):
    """A file's tests, with what they have in common, run in one process; so do the files that use the same server."""

    def _split_scope(self, nodeid: str) -> str:
        """Return what is run in one process together with this test."""
        file = nodeid.split("::", 1)[0]
        return shared_by(file) or file

    def _assign_work_unit(self, node: object) -> None:
        """Give a process the longest share that is left."""
        longest = max(self.workqueue, key=lambda scope: expected_seconds(scope, self.workqueue[scope]))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


@cache
def shared_by(file: str) -> str:
    """Return the name of the share of a file that uses a fixture which takes half a minute; "" for all others."""
    text = (ROOT / file).read_text(encoding="utf-8")
    shared = ("sft_run", "policy_server", "in_train_role", "in_serve_role")
    return SHARED if "mark.stack" in text and any(name in text for name in shared) else ""


@cache
def measured() -> dict[str, float]:
    return json.loads(SECONDS.read_text(encoding="utf-8"))


def expected_seconds(scope: str, tests: dict[str, bool]) -> float:
    """Return what a share takes; a file that isn't in the table takes little, the more tests the more."""
    files = {nodeid.split("::", 1)[0] for nodeid in tests}
    return sum(measured().get(file, 0.0) for file in files) + len(tests) / 1000


class Stopwatch:
    """Adds up how long each file's tests took, set-up and teardown included."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: object) -> None:
        self._seconds[report.nodeid.split("::", 1)[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the table; files that did not run keep their seconds."""
        long = {file: seconds for file, seconds in measured().items() if (ROOT / file).is_file()} | self._seconds
        table = {file: round(seconds) for file, seconds in sorted(long.items()) if seconds >= LEAST}
        SECONDS.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
