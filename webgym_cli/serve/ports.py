"""Port selection for servers; detects a port in use before a start that takes minutes."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from contextlib import suppress
from random import SystemRandom

from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.util.optional import when

# Timeout of a connection in seconds.
_CONNECT_SECONDS = 1.0
# How long a port is waited for that was this server's, and how often it is tried, in seconds.
_RECLAIM_SECONDS = 15.0
_RETRY_SECONDS = 0.25
# Free ports are looked for below those that Linux gives to outgoing connections: one of them, as a browser's, took the
# port before vLLM listened there.
_FREE = range(20_000, 30_000)
_TRIED = 20


async def claim_port(host: str, wanted: int, last: int = 0) -> int:
    """Return the port to listen on: `wanted`; if that is 0, `last` if it is free, else any free port.

    `last`: the port of before, 0 if there was none. A killed server's processes may hold it for seconds, and its
    clients know no other address, so it is waited for. Raises `UsageError` if `wanted` is in use, `SettingsError` if
    the host can't be bound.
    """
    deadline = time.monotonic() + when(last and wanted in (0, last), _RECLAIM_SECONDS)
    preferred = wanted or last
    while preferred:
        try:
            return _bind(host, preferred)
        except UsageError:
            if time.monotonic() >= deadline:
                if wanted:
                    raise
                break
        await asyncio.sleep(_RETRY_SECONDS)
    for port in SystemRandom().sample(_FREE, _TRIED):
        with suppress(UsageError):
            return _bind(host, port)
    return _bind(host, 0)


async def is_listening(host: str, port: int) -> bool:
    """Whether a server may be listening; false only if the connection is refused."""
    try:
        # A stopped process accepts no connections: once its backlog is full, connecting takes forever.
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    # Only a refusal proves that the port is free; a timeout may be a busy server.
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    writer.close()
    return True


def _bind(host: str, port: int) -> int:
    """Bind and release the port, and return it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just left is free
            listener.bind(address)
            listener.listen(1)
            return int(listener.getsockname()[1])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"port {port} of {host} is in use", hint="take a free one with -s serve.port=0, or name another"
            ) from error
        raise SettingsError(f"serve.host: can't listen on {host}, port {port}: {error.strerror or error}") from error
