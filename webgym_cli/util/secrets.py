"""Keys and passwords of this process: read from environment variables, removed from all text that is written, and from
the environment of child processes.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from webgym_cli.errors import SettingsError
from webgym_cli.util.optional import when
from webgym_cli.util.urls import is_loopback
from webgym_cli.util.user_code import runs_user_code

# Stands in written text for a key.
REDACTED = "[key]"
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{0,30}://[^\s'\"<>\\,]+", re.IGNORECASE)
# What an address may hold unescaped of a variable's value: `user:password`, padding, escapes.
_KEPT, _LONE_PERCENT = ":=%~", re.compile(r"%(?![0-9a-fA-F]{2})")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
# Parameters of an address that hold a key, by their name.
_KEY_NAME = re.compile(r"key|token|secret|pass|pwd|auth|sig$|signature|cred|jwt|session|bearer|^(sas|code|k|t)$", re.I)
# Values of such parameters that are no key: `max_tokens=100`, `auth=none`.
_NO_KEY = re.compile(r"\d{0,6}|true|false|none|null|yes|no|on|off|auto", re.IGNORECASE)
# What only a generated key looks like, whatever its name; a date (`2025-04-01-preview`) is shorter.
_GENERATED = re.compile(r"(?=.*\d)(?=.*[a-z])[\w.~+/=-]{20,}", re.IGNORECASE)
_PREFIXED = re.compile(r"(sk-|hf_|gh[a-z]_|glpat-|AIza)[\w-]{8,}")
# Names of environment variables that hold a key or a password.
_SECRET_NAME = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD)$", re.IGNORECASE)
# Words that stand for no key. To redact them, or other words as short, would destroy data: `"policy": "vllm"`.
_PLACEHOLDERS = {"placeholder", "localhost"}
_SHORTEST, _SHORTEST_WORD, _SHORTEST_NUMBER = 6, 9, 12

_variables: set[str] = set()
"""Environment variables that keys were read from."""
_forms: dict[str, tuple[str, ...]] = {}
"""Each secret of this process with the forms in which it may stand in a text."""


def read_secret(variable: str) -> str:
    """Return an environment variable's key without surrounding blanks, and redact it from now on; empty if unset."""
    secret = os.environ.get(variable, "").strip()
    add_secret(secret)
    _variables.add(variable)
    return secret


def read_bearer(authorization: str) -> str:
    """Return the token of an `Authorization` header; empty for another scheme."""
    scheme, _, token = authorization.partition(" ")
    return when(scheme.lower() == "bearer", token.strip())


def require_token(variable: str, host: str) -> str:
    """Return the token of a server, empty if there is none. Raises `SettingsError` if others could reach it without."""
    token = read_secret(variable)
    if not token and not is_loopback(host):
        message = f"{host}: other machines reach this address, and {variable} is not set"
        raise SettingsError(message, hint=f"export {variable}=$(openssl rand -hex 32)")
    return token


def add_secret(secret: str) -> None:
    """Redact a key or password from now on, unless it is a common word or number."""
    secret = secret.strip()
    for part in (secret, secret.partition(":")[2]):  # `user:password`
        if not _is_common(part):
            _forms.setdefault(part, _list_forms(part))


def add_environment() -> None:
    """Redact the values of variables whose name tells a key, and the keys in addresses, such as a proxy's."""
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and not value.startswith(("/", "~", ".")):
            add_secret(value)
        add_address_keys(value)


def add_address_keys(text: str) -> None:
    """Redact the keys in the addresses of a text from now on."""
    for _, key in find_address_keys(text):
        add_secret(key)
        add_secret(unquote(key))


def redact(text: str, secret: str = "") -> str:
    """Return a text without the keys of this process; `secret`: another one, of any length."""
    for form in (*_list_forms(secret), *chain.from_iterable(_forms.values())):
        if form in text:
            text = text.replace(form, REDACTED)
    return text


def find_address_keys(text: str) -> list[tuple[str, str]]:
    """Return the keys in the addresses of a text, each with its place; a `$VARIABLE` is none."""
    return list(chain.from_iterable(map(_find_keys, _ADDRESS.findall(text))))


def expand_variables(address: str) -> str:
    """Return an address with the values of its `$VARIABLE`s. Raises `SettingsError` for one that is not set."""

    def expand(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        value = require_header_value(name)
        if not value:
            raise SettingsError(
                f"environment {name}: is not set, but {address} needs it", hint=f"export {name}=..., then run it again"
            )
        if "://" in value:  # the whole address
            add_address_keys(value)
            return value
        return quote(_LONE_PERCENT.sub("%25", value), safe=_KEPT)

    return _VARIABLE.sub(expand, address)


def require_header_value(variable: str) -> str:
    """Return a variable's key. Raises `SettingsError` for characters that no HTTP header can carry."""
    secret = os.environ.get(variable, "").strip()
    if not secret.isascii() or not secret.isprintable():
        raise SettingsError(
            f"environment {variable}: the key holds characters that no HTTP header can carry",
            hint=f"export {variable} again, as one line of ASCII characters",
        )
    return secret if "://" in secret else read_secret(variable)


def find_variables(text: str) -> list[str]:
    """Return the names of the `$VARIABLE`s in the addresses of a text, or of the one that is all of it."""
    parts = _ADDRESS.findall(text) or when(_VARIABLE.fullmatch(text), [text])
    return [one or other for one, other in chain.from_iterable(map(_VARIABLE.findall, parts))]


class RedactingStream:
    """A text stream that writes no keys."""

    def __init__(self, stream: Any, aside: Any = None) -> None:
        """`aside`: takes what a user's code prints."""
        self._stream, self._aside = stream, aside

    def write(self, text: str) -> int:
        """Write a text without its keys."""
        stream = self._aside if self._aside and runs_user_code() else self._stream
        stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts without their keys."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _find_keys(address: str) -> list[tuple[str, str]]:
    rest = address.partition("://")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    tail, keys = rest[len(authority) :], []
    if "@" in authority:
        login, _, _ = authority.rpartition("@")
        user, _, password = login.partition(":")
        if not _VARIABLE.fullmatch(password or user):
            keys.append(("user", login))
    path, *queries = re.split(r"[?#]", tail)
    keys += [("path", part) for part in path.split("/") if _PREFIXED.match(part)]
    for pair in chain.from_iterable(re.split("[&;]", query) for query in queries):
        name, equals, value = pair.partition("=") if "=" in pair else ("", "", pair)
        value = unquote(value)
        named = equals and _KEY_NAME.search(name) and not _NO_KEY.fullmatch(value)
        if value and not _VARIABLE.search(value) and (named or _GENERATED.fullmatch(value)):
            keys.append((name or "query", value))
    return keys


def _is_common(word: str) -> bool:
    """Whether a word may stand in a text without being the secret."""
    shortest = _SHORTEST
    if word.isalpha():
        shortest = _SHORTEST_WORD
    elif word.isdecimal():
        shortest = _SHORTEST_NUMBER
    return len(word) < shortest or word.lower() in _PLACEHOLDERS


def _list_forms(secret: str) -> tuple[str, ...]:
    """Return the forms of a secret in a text, the longest first."""
    if not secret:
        return ()
    from html import escape  # a table of 2,200 names, which a process without secrets need not load

    raw = secret.encode(errors="surrogateescape")
    forms = {secret, repr(secret)[1:-1], repr(raw)[2:-1], shlex.quote(secret), escape(secret), quote_plus(raw)}
    forms |= {quote(raw, safe=safe) for safe in ("", "/", _KEPT)}
    for plain in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        forms |= {plain, json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]}
    if not _is_common(secret):
        forms.update(*(_list_base64(raw, before) for before in range(3)))
    return tuple(sorted(forms, key=len, reverse=True))


def _list_base64(raw: bytes, before: int) -> set[str]:
    """Return what base64 shows of bytes that follow `before` others (modulo 3), as in `Authorization: Basic`."""
    first, end = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
    return {encode(b"\0" * before + raw)[first:end].decode() for encode in (base64.b64encode, base64.urlsafe_b64encode)}


# Tokens of webgym's own servers, which no program that it starts needs.
_OWN_TOKENS = frozenset({"GATEWAY_TOKEN", "ENV_SERVER_TOKEN"})
# Keys that vLLM, the trainers and their libraries read themselves, whatever else uses them.
_READ_BY_PROGRAMS = re.compile(r"(HF|HUGGING_FACE|VLLM|MODELSCOPE|AWS)_")

_before: dict[str, str] = {}
"""The environment before `lend_variables` changed it; empty: it is unchanged."""


@contextmanager
def lend_variables(**variables: str) -> Iterator[None]:
    """Set variables for a process that can only take them from ours. What else starts meanwhile does not get them."""
    _before.update(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
            if name in _before:
                os.environ[name] = _before[name]
        _before.clear()


def inherited_environ() -> dict[str, str]:
    """Return this process's environment without lent variables."""
    return dict(_before or os.environ)


def environ_without_keys() -> dict[str, str]:
    """Return the environment for programs that need none of the keys of settings, such as a judge's."""
    # A copy: other threads add names meanwhile.
    keys = {name for name in _variables.copy() if not _READ_BY_PROGRAMS.match(name)} | _OWN_TOKENS
    return {name: value for name, value in inherited_environ().items() if name not in keys}
