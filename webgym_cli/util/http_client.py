"""HTTP client for untrusted servers: size and time of responses are bounded, redirects are not followed."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

import httpx

from webgym_cli.util.json_values import as_object
from webgym_cli.util.proxies import EnvironmentProxy, find_proxy, ssl_context

# Maximum response size in bytes, before and after decompression.
MAX_ANSWER = 16 * 2**20
# Default timeout of a request in seconds.
DEFAULT_TIMEOUT = 600.0
_LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
# Maximum length of a server's error text in a message, in characters.
_ERROR_CHARACTERS = 300
# zlib window size that detects gzip or zlib from the header.
_GZIP = 32 + zlib.MAX_WBITS


class BoundedClient(httpx.AsyncClient):
    """An `httpx.AsyncClient` whose `send` returns only complete responses.

    `timeout` limits the whole request, from the connection to the last byte; httpx alone restarts it with each byte. A
    redirect is returned as such, with the target in its body. Raises what httpx does: `ReadTimeout` after the timeout,
    `DecodingError` for a response that is too large or has an unknown encoding, and with `refuse_errors`
    `RemoteProtocolError` for an error that an OpenAI-compatible server sends with the status of a success. `trust_env`:
    whether requests to other machines take the environment's proxies. `verify`: whether certificates are checked.
    """

    def __init__(
        self,
        *,
        max_answer: int = MAX_ANSWER,
        refuse_errors: bool = False,
        trust_env: bool = True,
        verify: bool = True,
        **options: Any,
    ) -> None:
        transport = _Transport(proxied=trust_env, verify=verify)
        defaults: dict[str, Any] = {"timeout": DEFAULT_TIMEOUT, "transport": transport}
        super().__init__(**defaults | options, trust_env=False)
        # br and zstd can't be decompressed with a size limit; servers mean two formats by deflate
        self.headers["Accept-Encoding"] = "gzip"
        self._max_answer = max_answer
        self._refuse_errors = refuse_errors

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request and read its response; `stream` and `follow_redirects` have no effect."""
        if request.url.userinfo:  # user and password go into a header, because httpx logs URLs
            auth = httpx.BasicAuth(request.url.username, request.url.password)
            request.headers["Authorization"] = next(auth.auth_flow(request)).headers["Authorization"]
            request.url = request.url.copy_with(userinfo=b"")
        given = request.extensions.get("timeout", {}).values()
        deadline = max((seconds for seconds in given if seconds is not None), default=DEFAULT_TIMEOUT)
        try:
            async with asyncio.timeout(deadline):
                answer = await super().send(request, **options | {"stream": True, "follow_redirects": False})
                try:
                    content = await _read(answer, self._max_answer)
                finally:
                    await answer.aclose()
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"no whole answer within {deadline:g} s", request=request) from error
        if answer.is_redirect:
            content = _refuse_redirect(answer)
        if self._refuse_errors and answer.is_success and (problem := _find_error(content)):
            raise httpx.RemoteProtocolError(f"status {answer.status_code} with an error: {problem}", request=request)
        dropped = ("content-encoding", "content-length", "transfer-encoding")
        headers = [(name, value) for name, value in answer.headers.multi_items() if name not in dropped]
        whole = httpx.Response(answer.status_code, headers=headers, content=content, request=request)
        whole.elapsed = answer.elapsed
        return whole


class _Transport(httpx.AsyncBaseTransport):
    """Sends each request directly or through the environment's proxy, which is noted as the extension `proxy`.

    httpx's own choice takes a proxy for loopback, and fails on entries of `no_proxy` that are common.
    """

    def __init__(self, *, proxied: bool, verify: bool = True) -> None:
        self._proxied = proxied
        self._verify = verify
        self._transports: dict[EnvironmentProxy | None, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        proxy = find_proxy(str(request.url)) if self._proxied else None
        if proxy not in self._transports:
            url = proxy.url if proxy else None
            verify = self._verify and ssl_context()
            self._transports[proxy] = httpx.AsyncHTTPTransport(verify=verify, limits=_LIMITS, proxy=url)
        if proxy:
            request.extensions["proxy"] = proxy.variable
        return await self._transports[proxy].handle_async_request(request)

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()


async def _read(answer: httpx.Response, limit: int) -> bytes:
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", "deflate", ""):
        raise httpx.DecodingError(f"the answer is in the encoding {encoding[:40]!r}, which was not asked for")
    unpacker = None if encoding in ("identity", "") else zlib.decompressobj(_GZIP)
    content, received = bytearray(), 0
    async for part in answer.aiter_raw():
        received += len(part)
        try:
            # one byte above the limit proves that there is more; nothing beyond it is decompressed
            content += part if unpacker is None else unpacker.decompress(part, limit + 1 - len(content))
        except zlib.error as error:
            raise httpx.DecodingError(f"the answer can't be unpacked: {error}") from error
        if max(received, len(content)) > limit:
            raise httpx.DecodingError(f"the answer is larger than {limit} bytes")
    if unpacker is not None and received and not unpacker.eof:
        raise httpx.DecodingError("the answer can't be unpacked: its end is missing")
    return bytes(content)


def _find_error(content: bytes) -> str:
    """Return the text of an error in place of a completion, which proxies of several models send with status 200."""
    if b'"error"' not in content:  # the usual case, cheaply: within a string the quotes are escaped
        return ""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    answer = as_object(value)
    if answer.get("choices"):
        return ""
    error = answer.get("error")
    return " ".join(str(as_object(error).get("message") or error or "").split())[:_ERROR_CHARACTERS]


def _refuse_redirect(answer: httpx.Response) -> bytes:
    where = "elsewhere"
    if answer.next_request:
        where = str(answer.next_request.url.copy_with(userinfo=b"", query=None, fragment=None))
    return json.dumps({"error": {"message": f"it redirects to {where}, which is not followed"}}).encode()
