"""Reads pickles as data. Nothing is imported, called or set that a pickle names: what isn't known by name is refused.

The standard library's unpickler runs what a file tells it to. Here its opcodes are read by `pickletools`, and a small
machine does the data ones: numbers, texts, containers, and records, of which only the names and the fields are kept.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import IO, Any, cast

from webgym_cli.imports.pickle_stubs import AllowedNames, Builds, Name, PickleRefused, Stub, entries

MAX_OPERATIONS = 100_000_000
"""Opcodes of one pickle at most: a WebGym iteration of 20,000 steps has three million."""
VALUES = frozenset(
    (
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
    )
)
"""Opcodes whose argument is the value."""


def load(stream: IO[bytes], known: AllowedNames, origin: str) -> Any:
    """Return the value of the pickle that begins here; the stream is left behind its end.

    Raises `PickleRefused` that begins with `origin`, the file's name.
    """
    machine = _Machine(known)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if count > MAX_OPERATIONS:
                raise PickleRefused(f"more than {MAX_OPERATIONS} operations")
            if (operation := OPERATIONS.get(opcode.name)) is None:
                raise PickleRefused(f"its opcode {opcode.name} is not data (tensors, for example)")
            operation(machine, argument)
        return machine.pop()
    except PickleRefused as error:
        raise PickleRefused(f"{origin}: {error}") from None
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError) as error:
        raise PickleRefused(f"{origin}: not a whole pickle: {error}") from None


SPELLINGS = {"__builtin__": "builtins", "copy_reg": "copyreg"}
"""What modules were called in Python 2, whose names low protocols keep."""


class _Machine:
    """The stack, the memo and the opcodes."""

    def __init__(self, known: AllowedNames) -> None:
        self._known = known
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def top(self) -> Any:
        """Return the top of the stack and leave it there."""
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise PickleRefused("not a whole pickle: its stack is empty")
        return self._stack[-1]

    def pop(self) -> Any:
        """Take the top of the stack."""
        self.top()
        return self._stack.pop()

    def drop(self) -> None:
        """Take the top away."""
        self.pop()

    def drop_group(self) -> None:
        """Take all since the last mark away."""
        self.group()

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self._stack.append(value)

    def mark(self, _: Any) -> None:
        """Begin a group."""
        self._marks.append(len(self._stack))

    def group(self) -> list[Any]:
        """Take all since the last mark."""
        start = self._marks.pop()
        taken = self._stack[start:]
        del self._stack[start:]
        return taken

    def put(self, index: int | None) -> None:
        """Remember the top under a number."""
        self._memo[len(self._memo) if index is None else index] = self.top()

    def get(self, index: int) -> None:
        """Push what was remembered."""
        self._stack.append(self._memo[index])

    def named(self, dotted: str) -> None:
        """Push a name. Raises `PickleRefused` when it is not known."""
        head, _, rest = dotted.partition(".")
        dotted = f"{SPELLINGS.get(head, head)}.{rest}"
        if not self._known.admits(dotted):
            raise PickleRefused(
                f"it asks for {dotted[:200]!r}, which is no record of this format: nothing of it was run"
            )
        self._stack.append(Name(dotted))

    def stack_named(self, _: Any) -> None:
        """Push the name whose module and class lie on the stack."""
        qualified, module = self.pop(), self.pop()
        if not isinstance(module, str) or not isinstance(qualified, str):
            raise PickleRefused("a name that is no text")
        self.named(f"{module}.{qualified}")

    def make(self, arguments: Any, of: Any) -> None:
        """Push what stands for an object."""
        if not isinstance(of, Name):
            raise PickleRefused("it calls something that has no name: nothing of it was run")
        if not isinstance(arguments, tuple):
            raise PickleRefused("arguments that are no tuple")
        self._stack.append(self._known.make(of.dotted, arguments))

    def make_with_keywords(self, _: Any) -> None:
        """Push what stands for an object that is made with keywords."""
        keywords, arguments, of = self.pop(), self.pop(), self.pop()
        self.make(arguments, of)
        if keywords:
            self.build(keywords)

    def build(self, state: Any) -> None:
        """Give the top its state."""
        target = self.top()
        if not hasattr(type(target), "build"):
            raise PickleRefused(f"a state for a {type(target).__name__}: nothing of it was run")
        cast(Builds, target).build(state)

    def extend(self, values: list[Any]) -> None:
        """Add to the list on the top."""
        target = self.top()
        if isinstance(target, Stub):
            target = target.elements
        if not isinstance(target, list):
            raise PickleRefused("entries for what is no list")
        target.extend(values)

    def update(self, pairs: list[Any]) -> None:
        """Add keys and values, one after the other, to the dict on the top."""
        target = self.top()
        if isinstance(target, Stub):
            target = target.items
        if not isinstance(target, dict) or len(pairs) % 2:
            raise PickleRefused("entries for what is no dict")
        target.update(_entries(pairs))


def _entries(pairs: list[Any]) -> dict[Any, Any]:
    return entries(zip(pairs[::2], pairs[1::2], strict=True))


def _pair(machine: _Machine) -> list[Any]:
    value, key = machine.pop(), machine.pop()
    return [key, value]


def _tuple(size: int) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.push(tuple(reversed([machine.pop() for _ in range(size)])))


def _inst(machine: _Machine, dotted: str) -> None:
    arguments = tuple(machine.group())
    machine.named(dotted.replace(" ", ".", 1))
    machine.make(arguments, machine.pop())


def _obj(machine: _Machine, _: Any) -> None:
    of, *arguments = machine.group()
    machine.make(tuple(arguments), of)


OPERATIONS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(VALUES, _Machine.push),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "PROTO": lambda machine, version: None,
    "FRAME": lambda machine, size: None,
    "STOP": lambda machine, _: None,
    "MARK": _Machine.mark,
    "POP": lambda machine, _: machine.drop(),
    "POP_MARK": lambda machine, _: machine.drop_group(),
    "DUP": lambda machine, _: machine.push(machine.top()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_SET": lambda machine, _: machine.push([]),
    "LIST": lambda machine, _: machine.push(machine.group()),
    "FROZENSET": lambda machine, _: machine.push(machine.group()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.group())),
    "DICT": lambda machine, _: machine.push(_entries(machine.group())),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "APPEND": lambda machine, _: machine.extend([machine.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.group()),
    "ADDITEMS": lambda machine, _: machine.extend(machine.group()),
    "SETITEM": lambda machine, _: machine.update(_pair(machine)),
    "SETITEMS": lambda machine, _: machine.update(machine.group()),
    "GLOBAL": lambda machine, dotted: machine.named(dotted.replace(" ", ".", 1)),
    "STACK_GLOBAL": _Machine.stack_named,
    "REDUCE": lambda machine, _: machine.make(machine.pop(), machine.pop()),
    "NEWOBJ": lambda machine, _: machine.make(machine.pop(), machine.pop()),
    "NEWOBJ_EX": _Machine.make_with_keywords,
    "BUILD": lambda machine, _: machine.build(machine.pop()),
    "INST": _inst,
    "OBJ": _obj,
}
"""Opcode -> what it does."""
