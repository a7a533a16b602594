"""The words of the source: a class name means one class, and no identifier is a metaphor."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "webgym_cli"

METAPHORS = {
    *("crew", "cargo", "parcel", "depot", "workshop", "lesson", "knob", "knobs", "ballast", "burdened", "voice", "ear"),
    *("ears", "hands", "eye", "brief", "briefed", "heard", "hearing", "ballot", "rejoined", "hire", "hired", "loyalty"),
    *("breather", "watcher", "teller", "outbox", "farewell", "entrust", "inventing", "afar", "rested", "unreplayed"),
    *("underway", "mind", "fate", "settled", "meant", "lessons", "teach", "taught", "doorman", "door", "stranger"),
    *("patience", "calm", "calming", "welcome", "told", "untold", "voiced", "felt"),
}
"""Words whose meaning a reader from the field can't guess."""
VAGUE = {"found", "told", "said", "asked", "made", "heard", "gone"}
"""What happened to a value says nothing of what it is: `matches`, `response`, `rows` do."""
PUBLIC = {
    *((file, "asked") for file in ("records/events.py", "curriculum/execute.py", "prepare/rl/score.py")),
    ("rewards/judge/scripted_server.py", "asked"),
}
"""Fields of stored records, and the counters that become them."""


@cache
def trees() -> dict[str, ast.Module]:
    return {str(file.relative_to(PACKAGE)): ast.parse(file.read_text()) for file in sorted(PACKAGE.rglob("*.py"))}


def identifiers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names that a file gives: of classes, functions, arguments, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno


@cache
def words(identifier: str) -> set[str]:
    """Return the words of a name in snake case or camel case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}


def test_a_class_name_means_one_class():
    places = defaultdict(list)
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(f"{file}:{node.lineno}")
    assert not {name: where for name, where in sorted(places.items()) if len(where) > 1}


def test_no_identifier_is_a_metaphor():
    lines = []
    for file, tree in trees().items():
        names = {(Path(file).stem, 1), *identifiers(tree)}
        lines += [f"{file}:{line} {name}" for name, line in sorted(names) if words(name) & METAPHORS]
    assert not lines


@pytest.mark.parametrize("root", ["webgym_cli", "tests", "benchmarks"])
def test_no_name_is_a_participle_that_says_nothing(root):
    lines, word = [], re.compile(rf"\b_*(?:{'|'.join(VAGUE)})_*\b")
    for path in sorted((ROOT / root).rglob("*.py")):
        text, file = path.read_text(), str(path.relative_to(ROOT / root))
        if word.search(text):  # to parse all files takes four times as long
            names = {(name, line) for name, line in identifiers(ast.parse(text)) if name.strip("_") in VAGUE}
            lines += [f"{file}:{line} {name}" for name, line in sorted(names) if (file, name) not in PUBLIC]
    assert not lines


def test_no_function_is_named_by_a_bare_participle():
    irregular = {"kept", "drawn", "taken", "chosen", "held", "left", "seen", "shown", "torn", "written", "known"}
    assert not [
        f"{file}:{node.lineno} {node.name}"
        for file, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (re.fullmatch(r"_?[a-z]+[^e]ed", node.name) or node.name.strip("_") in irregular)
    ]
