"""What is refused before a Ray actor is made."""

import importlib
import pickle
from functools import lru_cache
from types import SimpleNamespace

import pytest

from webgym_cli.config.load import load
from webgym_cli.errors import JobError, StoreError, UsageError, VenvError
from webgym_cli.jobs.ray_cluster import Node, NodeLostError, as_own_error, name_errors, one_line, open_cluster
from webgym_cli.rollout.ray_driver import require_reachable

HERE = "10.0.0.1"


class Nodes:
    """A cluster that has only addresses."""

    here = HERE

    def __init__(self, *addresses):
        self.addresses = addresses

    def nodes(self, cpus):
        return [Node(address, address, f"host-{address}") for address in self.addresses]


@pytest.mark.parametrize("policy", ["http://0.0.0.0:81/v1", "http://policy/v1, http://[::1]:81/v1"])
def test_an_address_that_other_machines_would_take_for_their_own_is_refused(policy):
    with pytest.raises(UsageError, match=r"rollout\.policy: .*host-10\.0\.0\.2"):
        require_reachable(Nodes(HERE, "10.0.0.2"), load(), policy)
    require_reachable(Nodes(HERE, HERE), load(), policy)


@pytest.mark.parametrize("policy", ["http://policy/v1,http://10.0.0.3/v1", "vllm", "oracle"])
def test_an_address_that_all_can_reach_is_fine(policy):
    require_reachable(Nodes("10.0.0.2"), load(), policy)


def test_without_ray_the_command_to_type_is_named(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(VenvError, match="No module named 'ray'") as caught, open_cluster(load().rollout):
        raise AssertionError("it opened")
    assert "webgym[ray]" in caught.value.hint


def test_a_client_address_is_refused(monkeypatch):
    ray = SimpleNamespace(is_initialized=lambda: False, shutdown=lambda: None)
    monkeypatch.setattr(importlib, "import_module", lambda name: ray)
    settings = load(overrides=["rollout.ray_address=ray://head:10001"]).rollout
    with pytest.raises(UsageError, match="Ray's client addresses don't suffice"), open_cluster(settings):
        raise AssertionError("it opened")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:9", r"rollout.ray_address: 127.0.0.1:9: .*refused"),
        ("127.0.0.1:99999", r"rollout.ray_address: 127.0.0.1:99999: "),
        ("no-such-host.invalid:6379", r"rollout.ray_address: no-such-host.invalid:6379: "),
        ("", "no Ray cluster on this machine"),
    ],
)
def test_a_cluster_that_is_not_there_is_an_error_with_the_command_to_type(monkeypatch, tmp_path, address, message):
    pytest.importorskip("ray")
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", lru_cache(set))  # without those of other tests
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    settings = load(overrides=[f"rollout.ray_address={address}"]).rollout
    with pytest.raises(UsageError, match=message) as caught, open_cluster(settings):
        raise AssertionError("it opened")
    assert "ray symmetric-run" in caught.value.hint


def test_an_error_travels_and_ray_speaks_in_one_line():
    known = as_own_error(pickle.loads(pickle.dumps(StoreError("full", hint="free space"))))
    assert (type(known), str(known), known.hint) == (StoreError, "full", "free space")
    assert str(as_own_error(ZeroDivisionError("by 0"))) == "ZeroDivisionError: by 0"
    text = "The actor died.\n\tclass_name: Rank\n\tactor_id: 12\nThe node was lost.\n"
    assert one_line(RuntimeError(text)) == "The actor died. The node was lost."


@pytest.mark.parametrize(
    ("error", "lost", "raised", "message", "hint"),
    [
        (UsageError("no folder", hint="mount it"), "left", UsageError, "n1: no folder", "mount it"),
        (JobError("it failed"), "left", JobError, "n1: it failed", "again"),
        (NodeLostError("it died"), "left", JobError, "n1 left: it died", "again"),
        (NodeLostError("it died"), "", NodeLostError, "it died", ""),
    ],
)
def test_an_error_names_the_node(error, lost, raised, message, hint):
    with pytest.raises(raised, match=f"^{message}$") as caught, name_errors("n1", "again", lost=lost):
        raise error
    assert getattr(caught.value, "hint", "") == hint
