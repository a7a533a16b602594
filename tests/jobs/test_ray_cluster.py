"""What is refused before a rank is made, and the book of who has what."""

from __future__ import annotations

import builtins
import importlib

import pytest

from webgym_cli.config.load import load
from webgym_cli.errors import StoreError, UsageError, VenvError
from webgym_cli.jobs.ray_cluster import Node, open_cluster
from webgym_cli.jobs.ray_connection import one_line
from webgym_cli.records.episode import Episode
from webgym_cli.records.task import Split, Task
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.ray.assignments import Ledger
from webgym_cli.rollout.ray.messages import Fault
from webgym_cli.rollout.ray.reachability import loopback, require_reachable, seen_from_afar

HERE = "10.0.0.1"


class Nodes:
    """A cluster that has only addresses."""

    here = HERE

    def __init__(self, *addresses):
        self.addresses = addresses

    def nodes(self, cpus):
        return [Node(address, address, f"host-{address}") for address in self.addresses]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8999/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:80", True),
        ("http://10.0.0.1", False),
        ("http://policy.example/v1", False),
        ("oracle", False),
        ("scripted", False),
    ],
)
def test_loopback(url, expected):
    assert loopback(url) is expected


def test_our_server_is_seen_from_afar_where_it_listens_on_all_addresses():
    assert seen_from_afar("http://127.0.0.1:81/v1", "0.0.0.0", HERE) == "http://10.0.0.1:81/v1"
    assert seen_from_afar("http://[::1]:81/v1", "::", "fe80::1") == "http://[fe80::1]:81/v1"
    assert seen_from_afar("http://10.9.9.9:81/v1", "10.9.9.9", HERE) == "http://10.9.9.9:81/v1"


@pytest.mark.parametrize(
    ("policy", "overrides", "named"),
    [
        ("vllm", [], "serve.host: 127.0.0.1"),
        ("http://localhost:81/v1", [], "rollout.policy: localhost"),
        ("http://policy/v1, http://127.0.0.1:81/v1", [], "rollout.policy: 127.0.0.1"),
        ("oracle", ["judge.base_url=http://127.0.0.1:5/v1"], "judge.base_url: 127.0.0.1"),
    ],
)
def test_an_address_that_other_machines_would_take_for_their_own_is_refused(policy, overrides, named):
    settings = load(overrides=overrides)
    with pytest.raises(UsageError, match=rf"{named} leads every node to itself, but host-10.0.0.2 \(10.0.0.2\)"):
        require_reachable(Nodes(HERE, "10.0.0.2"), settings, policy)
    require_reachable(Nodes(HERE, HERE), settings, policy)


def test_an_address_that_all_can_reach_is_fine():
    require_reachable(Nodes("10.0.0.2"), load(overrides=["serve.host=0.0.0.0"]), "vllm")
    require_reachable(Nodes("10.0.0.2"), load(), "http://policy/v1,http://10.0.0.3/v1")


async def test_without_ray_the_command_to_type_is_named(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(VenvError, match="No module named 'ray'") as caught:
        async with open_cluster(load().rollout):
            raise AssertionError("it opened")
    assert "webgym[ray]" in caught.value.hint


async def test_a_client_address_is_refused(monkeypatch):
    monkeypatch.setattr(importlib, "import_module", lambda name: builtins)
    with pytest.raises(UsageError, match="ray://head:10001: Ray's client addresses don't suffice"):
        async with open_cluster(load(overrides=["rollout.ray_address=ray://head:10001"]).rollout):
            raise AssertionError("it opened")


async def test_an_address_where_nothing_listens_is_named_at_once():
    pytest.importorskip("ray")
    with pytest.raises(UsageError, match=r"rollout.ray_address: 127.0.0.1:9: .*refused|Connect call failed"):
        async with open_cluster(load(overrides=["rollout.ray_address=127.0.0.1:9"]).rollout):
            raise AssertionError("it opened")


def test_an_error_travels():
    known = Fault.of(StoreError("full", hint="free space")).error("rank 1")
    assert (type(known), str(known), known.hint) == (StoreError, "rank 1: full", "free space")


def test_ray_speaks_in_one_line():
    told = "The actor died.\n\tclass_name: Rank\n\tactor_id: 12\nThe node was lost.\n"
    assert one_line(RuntimeError(told)) == "The actor died. The node was lost."


def owed(*names, attempt=0):
    return [
        PendingEpisode(
            Episode(id=name, split=Split.TRAIN, iteration=0, task=Task(id=name), seed=1, max_steps=3), attempt
        )
        for name in names
    ]


def ids(found):
    return [item.episode.id for item in found]


def never(item):
    return False


def test_each_episode_is_with_one_rank():
    ledger = Ledger.of(owed("a", "b", "c"))
    assert ids(ledger.hand_out(0, 2, never)) == ["a", "b"]
    assert ids(ledger.hand_out(1, 2, never)) == ["c"]
    assert ledger.finish(1, "a") is None and ledger.finished == 0
    assert ledger.finish(0, "a") is not None and ledger.finished == 1
    again = owed("b", attempt=1)[0]
    assert not ledger.give_back(1, again) and ledger.give_back(0, again)
    assert list(ledger.waiting) == [again] and not ledger.over


def test_what_a_lost_rank_had_comes_first_with_a_number_of_its_own():
    ledger = Ledger.of(owed("a", "b", "c", "d"))
    ledger.hand_out(0, 3, never)
    stored_once = owed("c", attempt=4)[0]
    assert ledger.reclaim(0, {"a": owed("a")[0], "c": stored_once}) == 2
    assert [(item.episode.id, item.attempt) for item in ledger.waiting] == [("a", 1), ("c", 4), ("d", 0)]
    assert (ledger.finished, ledger.reclaim(0, {})) == (1, 0)


def test_what_is_skipped_is_finished():
    ledger = Ledger.of(owed("a", "b"))
    assert ids(ledger.hand_out(0, 1, lambda item: item.episode.id == "a")) == ["b"]
    assert (ledger.finished, ledger.over) == (1, False)
    ledger.finish(0, "b")
    assert ledger.over
