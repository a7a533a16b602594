"""Installs the other systems beside which tests run ours: python -m tests.peers. `make test` does so."""

import pytest

from benchmarks.peers import OPENENV, TRL, VERIFIED, VERL, Peer


def require(peer: Peer) -> None:
    """Skip the test if the peer is not installed."""
    if not peer.installed:
        pytest.skip(f"{peer} is not installed: python -m tests.peers")


if __name__ == "__main__":
    for each in (OPENENV, TRL, VERIFIED, VERL):
        each.install()
