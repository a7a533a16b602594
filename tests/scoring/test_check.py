"""Checks: which values are scores, what a failure says, and what an episode without a page offers."""

import asyncio
import functools
import hashlib
import time
from unittest import mock

import pytest

from tests.records.builders import trajectory
from tests.tables import each
from webgym_cli.config.load import load
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import FinalState, Outcome
from webgym_cli.rollout.runner import check_trajectory
from webgym_cli.scoring import CheckContext, NeedsPageError, check
from webgym_cli.scoring.check import CHECKS, require_checks
from webgym_cli.scoring.user_function import digest_source
from webgym_cli.tools.workers import Workers
from webgym_cli.util.user_code import list_sources

INFINITE = float("inf")


@pytest.fixture(autouse=True)
def _no_checks():
    with mock.patch.dict(CHECKS.registered, clear=True):
        yield


def context(**changes):
    task = Task(
        id="close-7", check="closed", site="desk", role="agent", extra={"ticket": 7, "reward": 1, "context": "mine"}
    )
    final = FinalState(url="http://desk/7", title="Ticket 7", text="Closed", state={"tenant": "t1"})
    outcome = Outcome(reward=0.0, answer="It is closed.")
    return CheckContext(trajectory(task=task, final=final, outcome=outcome, **changes))


def score(function, given=None, *, seconds=5.0, **options):
    return asyncio.run(check("closed", **options)(function).score(Workers(), given or context(), seconds))


def test_a_check_gets_the_task_by_name_and_the_end_of_the_episode():
    async def decide(ticket, site, role, id, context, missing=3):
        await asyncio.sleep(0)
        seen = (ticket, site, role, id, missing, context.url, context.title, context.text, context.state["tenant"])
        assert seen == (7, "desk", "agent", "close-7", 3, "http://desk/7", "Ticket 7", "Closed", "t1")
        assert (context.answer, context.id, len(context.trajectory.steps)) == ("It is closed.", "train-0000-00000", 2)
        return {"reward": 0.5, "clicks": 2, "why": "half"}

    result = score(decide)
    assert (result.source, result.value, result.extras, result.detail) == ("check", 0.5, {"clicks": 2.0}, "closed")
    assert len(result.digest) == 64


def test_the_digest_of_a_check_is_that_of_the_files_that_it_imports_too(tmp_path):
    imports = "import json\nfrom desk import tickets\nfrom desk.rules import LIMIT\ndef late():\n    import store"
    files = {
        "check.py": f"{imports}\ndef closed(ticket):\n    return True\n",
        "desk/__init__.py": "from .rules import LIMIT",
        "desk/tickets.py": "from desk.db.lines import read",
        "desk/db/__init__.py": "",
        "desk/db/lines.py": "from ..times import now",
        "desk/times.py": "",
        "desk/rules.py": "LIMIT = 1",
        "store.py": "from json import dumps",
        "other.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    sources = list_sources(tmp_path / "check.py")
    assert {str(path.relative_to(tmp_path)) for path in sources} == files.keys() - {"other.py"}
    within = list_sources(tmp_path / "desk" / "tickets.py")
    assert {path.name for path in within} == {"tickets.py", "__init__.py", "lines.py", "times.py", "rules.py"}
    namespace = {}
    exec(compile("def closed(ticket):\n    return True\n", str(tmp_path / "check.py"), "exec"), namespace)
    digests = [digest_source(namespace["closed"])]
    assert digest_source(namespace["closed"]) == digests[0]
    for name in ("other.py", "desk/rules.py", "store.py"):
        (tmp_path / name).write_text(f"{files[name]}\n")
        list_sources.cache_clear()
        digests.append(digest_source(namespace["closed"]))
    assert [digests[0] == digest for digest in digests] == [True, True, False, False]
    assert digests[2] != digests[3]
    alone = tmp_path / "other.py"
    exec(compile("def alone():\n    return True\n", str(alone), "exec"), namespace)
    assert digest_source(namespace["alone"]) == hashlib.sha256(alone.read_bytes()).hexdigest()


def test_an_installed_check_is_its_own_package(tmp_path):
    folder = tmp_path / "site-packages"
    for name, text in {
        "mine/checks.py": "import other, webgym_cli\nfrom mine import db",
        "single.py": "import other",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in ("mine/__init__.py", "mine/db.py", "other.py"):
        (folder / name).write_text("")
    assert {path.name for path in list_sources(folder / "mine" / "checks.py")} == {"checks.py", "__init__.py", "db.py"}
    assert list(list_sources(folder / "single.py")) == [folder / "single.py"]


@pytest.mark.parametrize(("value", "reward"), [(True, 1.0), (0, 0.0), (0.25, 0.25), ({"reward": 1}, 1.0)])
def test_a_number_from_0_to_1_is_a_score(value, reward):
    assert score(lambda: value).value == reward


@pytest.mark.parametrize("parts", [(0.6, 0.3, 0.1), (0.4, 0.2, 0.1, 0.2, 0.1)])
def test_parts_that_add_up_to_1_are_a_success(parts):
    total = functools.reduce(float.__add__, parts)  # `sum` of Python 3.12 compensates
    assert total != 1 and score(lambda: total).value == 1


NO_SCORES = [
    *(None, "1", b"1", float("nan"), float("inf"), -0.1, 1.01, 10**400, [], {}),
    *({"reward": None}, {"reward": 1, "n": 1e999}, 1.0000001),
]


@pytest.mark.parametrize("value", NO_SCORES)
def test_any_other_value_is_a_failure_that_names_the_check_and_its_line(value):
    with pytest.raises(BoundaryError, match=r"the check closed failed: .* \(test_check.py:\d+\)$") as caught:
        score(lambda: value)
    assert caught.value.kind is FailureKind.ENVIRONMENT_ERROR
    assert ": 1 is not" not in str(caught.value)  # of 1.0000001


def test_what_a_check_raises_is_a_failure_at_the_line_that_raised():
    def helper():
        raise KeyError("tickets")

    def decide():
        return helper()

    line = helper.__code__.co_firstlineno + 1
    with pytest.raises(BoundaryError, match=rf"KeyError: 'tickets' \(test_check.py:{line}\)"):
        score(decide)


@pytest.mark.parametrize("error", [type("Silent", (Exception,), {"__str__": None}), AssertionError])
def test_an_exception_without_a_text_is_a_failure_too(error):
    with pytest.raises(BoundaryError, match=rf"the check closed failed: {error.__name__} \(test_check.py:\d+\)"):
        score(lambda context: (_ for _ in ()).throw(error))


def test_a_check_gets_copies_of_the_fields_but_the_context_itself():
    given = context()
    given.trajectory.task.extra["titles"] = ["b", "a"]
    assert score(lambda titles, context: titles.pop() == "a" and context is given, given).value == 1
    assert given.trajectory.task.extra["titles"] == ["b", "a"]
    CHECKS.registered.clear()
    check("closed")(lambda context: context.trajectory.task.extra["titles"].sort() or 1)
    stored = asyncio.run(check_trajectory(given.trajectory, object(), load(), Workers()))
    assert (stored.outcome.reward, stored.task.extra["titles"]) == (1.0, ["b", "a"])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_check_ends_at_its_deadline(is_async):
    async def wait():
        await asyncio.sleep(60)

    with pytest.raises(BoundaryError, match=r"more than 0.05 s .* \(test_check.py"):
        score(wait if is_async else lambda: time.sleep(60), timeout=0.05)


def test_without_a_live_page_only_what_is_stored_can_be_read():
    with pytest.raises(BoundaryError) as caught:
        score(lambda context: context.page.locator("b").count())
    assert isinstance(caught.value.__cause__, NeedsPageError)
    for name in ("url", "title", "text", "state"):
        with pytest.raises(NeedsPageError):
            getattr(CheckContext(trajectory()), name)
    for final, names in ((FinalState(url="http://a/"), ("title", "text")), (FinalState(), ("url", "title", "text"))):
        for name in names:
            with pytest.raises(NeedsPageError):
                getattr(CheckContext(trajectory(final=final)), name)


def test_a_task_is_refused_whose_check_is_not_loaded_or_needs_another_field(tmp_path):
    tasks = [Task(id="a", check="closed", extra={"ticket": 1}), Task(id="b", check="closed"), Task(id="c")]
    with pytest.raises(UsageError, match=r"task a: .*'closed'"):
        require_checks(tasks)
    check("closed")(lambda ticket: 1)
    with pytest.raises(UsageError, match="closed needs ticket, which the task b does not have"):
        require_checks(tasks)
    require_checks([tasks[0], tasks[2]])
    check("hiding")(lambda context: 1)
    with pytest.raises(UsageError, match="hiding has an argument context of its own, but the task e has a field conte"):
        require_checks([Task(id="e", check="hiding", extra={"context": "x"})])
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')")
    with pytest.raises(UsageError, match="loaded: closed"):
        require_checks([Task(id="d", check=f"{tmp_path}/evil.py:decide")])
    assert not marker.exists()


@each("value", [len, None, functools.partial(len, []), dict])
def test_a_check_is_a_function(value):
    with pytest.raises(UsageError, match=r"check closed: a .* is no function"):
        check("closed")(value)


@each("timeout", [0, -1, True, "3", float("nan"), INFINITE])
def test_a_time_limit_is_a_number_of_seconds(timeout):
    with pytest.raises(UsageError, match="check closed: timeout="):
        check("closed", timeout=timeout)(lambda: 1)


@each("name", [lambda: 1, "", None])
def test_a_check_needs_a_name(name):
    with pytest.raises(UsageError, match="needs the name"):
        check(name)
