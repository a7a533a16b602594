"""Parser of function calls with literal arguments: quoted strings, numbers, None, lists. Nothing is evaluated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from webgym_cli.util.text import skip_match

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?(?![\w.])", re.ASCII)
_QUOTES = ('"""', "'''", '"', "'")
# Character after a backslash -> the character that the escape represents. A backslash at a line's end continues the
# line.
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "\n": ""}
# Character after a backslash -> number of hexadecimal digits of the character code.
_CODES = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Identifier:
    """A bare name, like `__page__`."""

    name: str


# Possible values of an argument.
Value = str | int | float | Identifier | None | list[Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One function call."""

    name: str
    positional: tuple[Value, ...]
    named: dict[str, Value]
    end: int
    """Index of the first character after the call."""

    def get(self, position: int | None, name: str, default: Any = None) -> Any:
        """Return an argument by position or name, or the default."""
        if position is not None and position < len(self.positional):
            return self.positional[position]
        return self.named.get(name, default)

    def by_name(self, parameters: tuple[str, ...]) -> dict[str, Value]:
        """Return the arguments by name, without those that are None.

        Raises `BadCall` for too many positional arguments, and for one that is given twice.
        """
        # The message is shown to the policy, so it names the limit.
        if len(self.positional) > len(parameters):
            raise BadCall(f"{self.name} has {len(parameters)} arguments at most, got {len(self.positional)}")
        by_parameter = dict(zip(parameters, self.positional, strict=False))
        if twice := by_parameter.keys() & self.named.keys():
            raise BadCall(f"the argument {min(twice)} is given twice")
        return {name: value for name, value in (by_parameter | self.named).items() if value is not None}


class BadCall(ValueError):
    """Invalid call. `open`: the text ended within the call."""

    def __init__(self, reason: str, *, is_open: bool = False) -> None:
        super().__init__(reason)
        self.is_open = is_open


def read_call(text: str, start: int = 0, *, python: bool = False) -> Call:
    """Return the call whose name starts at index `start`. Raises `BadCall`. `python`: allow lists, True and False."""
    reader = _Reader(text, start, python=python)
    name = reader.name()
    if not name or not reader.take("("):
        raise BadCall("no function call")
    positional: list[Value] = []
    named: dict[str, Value] = {}
    while not reader.take(")"):
        if (positional or named) and not reader.take(","):
            raise reader.unexpected("a comma")
        if reader.take(")"):
            break
        key, value = reader.argument()
        # A syntax error in Python too; the order would be ambiguous.
        if key is None and named:
            raise BadCall("an argument without a name stands after one that has a name")
        if key is None:
            positional.append(value)
        elif key in named:
            raise BadCall(f"the argument {key} is given twice")
        else:
            named[key] = value
    return Call(name, tuple(positional), named, reader.at)


def quote_string(text: str) -> str:
    """Return a text as a quoted string on one line, readable by `read_call`."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + plain.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'


class _Reader:
    """Scanner that reads a text once from left to right."""

    def __init__(self, text: str, at: int, *, python: bool) -> None:
        self.text, self.at, self._python, self._in_list = text, at, python, False

    def take(self, sign: str) -> bool:
        """Skip this token and the space before it, if it comes next."""
        place = self._skip_space()
        if not self.text.startswith(sign, place):
            return False
        self.at = place + len(sign)
        return True

    def name(self) -> str:
        """Skip a name and return it; empty if none comes next."""
        match = _NAME.match(self.text, self._skip_space())
        if match is None:
            return ""
        self.at = match.end()
        return match[0]

    def argument(self) -> tuple[str | None, Value]:
        """Return name (if any) and value of the next argument."""
        word = self.name()
        if word and self.take("="):
            return word, self._read_value(self.name())
        return None, self._read_value(word)

    def unexpected(self, wanted: str) -> BadCall:
        """Return the error for the text that comes next."""
        place = self._skip_space()
        if place >= len(self.text):
            return BadCall("the call is not closed", is_open=True)
        return BadCall(f"expected {wanted}, got {self.text[place : place + 20]!r}")

    def _skip_space(self) -> int:
        return skip_match(_SPACE, self.text, self.at)

    def _read_value(self, word: str) -> Value:
        """Return what a word stands for; without one, the literal that comes next."""
        if not word:
            return self._read_literal()
        if self._python and word in ("True", "False"):
            return word == "True"
        return None if word == "None" else Identifier(word)

    def _read_literal(self) -> Value:
        place = self._skip_space()
        quote = next((quote for quote in _QUOTES if self.text.startswith(quote, place)), None)
        if quote is not None:
            self.at = place + len(quote)
            return self._read_text(quote)
        if self._python and not self._in_list and self.take("["):
            return self._read_list()
        number = _NUMBER.match(self.text, place)
        if number is None:
            raise self.unexpected("a text in quotes, a number or None")
        self.at = number.end()
        return float(number[0]) if "." in number[0] else int(number[0])

    def _read_list(self) -> list[Value]:
        """Return the list up to the closing bracket. Nested lists are refused."""
        items: list[Value] = []
        self._in_list = True
        while not self.take("]"):
            if items and not self.take(","):
                raise self.unexpected("a comma")
            value = self._read_value(self.name())
            if isinstance(value, Identifier):
                raise BadCall(f"{value.name} is no literal")
            items.append(value)
        self._in_list = False
        return items

    def _read_text(self, quote: str) -> str:
        """Return the string up to the closing quote, with escapes resolved."""
        parts: list[str] = []
        while self.at < len(self.text):
            if self.text.startswith(quote, self.at):
                self.at += len(quote)
                return "".join(parts)
            if self.text[self.at] == "\\":
                parts.append(self._read_escape())
            else:
                parts.append(self.text[self.at])
                self.at += 1
        raise BadCall("a quote is not closed", is_open=True)

    def _read_escape(self) -> str:
        """Return the character of an escape; an unknown escape stays unchanged."""
        letter = self.text[self.at + 1 : self.at + 2]
        self.at += 1 + len(letter)
        if letter not in _CODES:
            return _ESCAPES.get(letter, f"\\{letter}")
        digits = self.text[self.at : self.at + _CODES[letter]]
        if not re.fullmatch(rf"[0-9a-fA-F]{{{_CODES[letter]}}}", digits) or int(digits, 16) > 0x10FFFF:
            raise BadCall(f"\\{letter}{digits} is no character", is_open=self.at + _CODES[letter] > len(self.text))
        self.at += _CODES[letter]
        return chr(int(digits, 16))
