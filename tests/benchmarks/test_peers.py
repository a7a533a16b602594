import json
import sys
from concurrent.futures import ThreadPoolExecutor
from subprocess import check_output

import pytest

from benchmarks.peers import Peer
from webgym_cli.errors import JobError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The user's cache, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "webgym" / "benchmarks"


@pytest.fixture
def run_commands(monkeypatch):
    """The commands that were run."""
    commands, run = [], Peer._run
    monkeypatch.setattr(Peer, "_run", lambda self, command: (commands.append(command), run(self, command)))
    return commands


def peer(*packages, works="import json"):
    return Peer("Nothing", "1.0", packages, works)


def test_an_environment_of_its_own_is_made_once_whoever_comes_meanwhile(cache, run_commands):
    nothing = peer()
    assert (nothing.home, nothing.installed) == (cache / "nothing-1.0", False)
    with ThreadPoolExecutor() as both:
        list(both.map(lambda _: nothing.install(), range(2)))
    nothing.install()
    assert nothing.installed
    assert [command[0] for command in run_commands] == [sys.executable, str(nothing.python)]
    prefix = check_output([nothing.python, "-c", "import json, sys; print(json.dumps(sys.prefix))"])
    assert json.loads(prefix) == str(nothing.home)


def test_what_was_left_half_made_is_made_anew(cache):
    half = cache / "nothing-1.0" / "bin" / "python"
    half.parent.mkdir(parents=True)
    half.write_text("half")
    peer().install()
    assert peer().installed


@pytest.mark.parametrize(
    ("nothing", "reason"),
    [
        (peer(("--no-index", "nothing-at-all==1.0")), "nothing-at-all"),
        (peer(works="import nothing_at_all"), "No module named 'nothing_at_all'"),
    ],
    ids=["no index", "it does not work"],
)
def test_one_that_can_not_be_made_is_told_and_not_taken_for_complete(nothing, reason):
    with pytest.raises(JobError, match=rf"^Nothing 1\.0 can't be installed: .*{reason}"):
        nothing.install()
    assert not nothing.installed
