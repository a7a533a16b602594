"""Ports of servers: the one of before is waited for, a stranger's is refused."""

import asyncio
import socket
from pathlib import Path

import pytest

from webgym_cli.errors import UsageError
from webgym_cli.serve import ports

OUTGOING = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
"""The first port that Linux gives to outgoing connections."""


@pytest.fixture
def holder():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.mark.parametrize("wants", [True, False], ids=["a port that is set", "any port"])
async def test_the_port_of_before_is_waited_for(holder, wants):
    last = holder.getsockname()[1]
    claiming = asyncio.create_task(ports.claim_port("127.0.0.1", last if wants else 0, last))
    await asyncio.sleep(2 * ports._RETRY_SECONDS)
    holder.close()
    assert await claiming == last


async def test_a_port_that_stays_in_use_is_refused_or_replaced(holder, monkeypatch):
    monkeypatch.setattr(ports, "_RECLAIM_SECONDS", 0.0)
    last = holder.getsockname()[1]
    with pytest.raises(UsageError, match=f"port {last} "):
        await ports.claim_port("127.0.0.1", last, last)
    assert await ports.claim_port("127.0.0.1", 0, last) not in (0, last)


async def test_a_port_of_nobody_before_is_refused_at_once(holder, monkeypatch):
    async def fail(seconds):
        raise AssertionError("it waited")

    monkeypatch.setattr(ports.asyncio, "sleep", fail)
    with pytest.raises(UsageError):
        await ports.claim_port("127.0.0.1", holder.getsockname()[1])


async def test_a_free_port_is_none_that_an_outgoing_connection_may_take(holder, monkeypatch):
    assert 0 < await ports.claim_port("127.0.0.1", 0) < OUTGOING
    taken = holder.getsockname()[1]
    monkeypatch.setattr(ports, "_FREE", [taken])
    monkeypatch.setattr(ports, "_TRIED", 1)
    assert await ports.claim_port("127.0.0.1", 0) not in (0, taken)
