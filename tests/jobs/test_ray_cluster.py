"""What is refused before a Ray actor is made."""

from __future__ import annotations

import builtins
import importlib
import pickle

import pytest

from webgym_cli.config.load import load
from webgym_cli.errors import StoreError, UsageError, VenvError
from webgym_cli.jobs.ray_cluster import Node, as_own_error, open_cluster
from webgym_cli.jobs.ray_connection import one_line
from webgym_cli.rollout.ray.reachability import external_url, has_loopback_host, require_reachable

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
    assert has_loopback_host(url) is expected


def test_our_server_is_seen_from_afar_where_it_listens_on_all_addresses():
    assert external_url("http://127.0.0.1:81/v1", "0.0.0.0", HERE) == "http://10.0.0.1:81/v1"
    assert external_url("http://[::1]:81/v1", "::", "fe80::1") == "http://[fe80::1]:81/v1"
    assert external_url("http://10.9.9.9:81/v1", "10.9.9.9", HERE) == "http://10.9.9.9:81/v1"


@pytest.mark.parametrize(
    ("policy", "overrides", "named"),
    [
        ("vllm", [], "serve.host: 127.0.0.1"),
        ("http://localhost:81/v1", [], "rollout.policy: localhost"),
        ("http://policy/v1, http://127.0.0.1:81/v1", [], "rollout.policy: 127.0.0.1"),
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
    known = as_own_error(pickle.loads(pickle.dumps(StoreError("full", hint="free space"))))
    assert (type(known), str(known), known.hint) == (StoreError, "full", "free space")
    assert str(as_own_error(ZeroDivisionError("by 0"))) == "ZeroDivisionError: by 0"


def test_ray_speaks_in_one_line():
    told = "The actor died.\n\tclass_name: Rank\n\tactor_id: 12\nThe node was lost.\n"
    assert one_line(RuntimeError(told)) == "The actor died. The node was lost."
