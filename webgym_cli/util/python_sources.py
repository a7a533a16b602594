"""The Python files that a file of a user's consists of."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

# Folders of installed packages, which are no part of a user's code that lies among them.
_INSTALLED = ("site-packages", "dist-packages")


@cache
def list_sources(path: Path) -> Mapping[Path, bytes]:
    """Return the content of a Python file and of those that it imports from its folder or its package's.

    Once for a file: it is what the process loaded, and each of a hundred checks in one file asks for it.
    """
    sources: dict[Path, bytes] = {}
    top = path.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    waiting = [path]
    while waiting:
        file = waiting.pop(0)
        if file in sources or not file.is_file():
            continue
        sources[file] = file.read_bytes()
        with suppress(SyntaxError, ValueError):  # edited since it was loaded
            for level, parts in _list_imports(ast.parse(sources[file])):
                folders = file.parents[level - 1 : level] if level else dict.fromkeys((path.parent, top))
                for folder in folders:
                    if _is_foreign(parts[0], folder, path):
                        continue
                    places = [folder.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
                    waiting += [place / "__init__.py" for place in places]
                    waiting.append(folder.joinpath(*parts[:-1], f"{parts[-1]}.py"))
    return sources


def _is_foreign(name: str, folder: Path, path: Path) -> bool:
    """Whether a module in a folder is webgym's, or of another installed package than the file `path`."""
    own = path.relative_to(folder).parts[0] if path.is_relative_to(folder) else ""
    return name == "webgym_cli" or (folder.name in _INSTALLED and name != own.removesuffix(".py"))


def _list_imports(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Yield the parts of each name that code may import as a module, with the number of leading dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            # an imported name may be a module or something in one
            yield from (
                (node.level, parts) for parts in (module, *([*module, each.name] for each in node.names)) if parts
            )
