"""What the pages for people say: their code blocks, commands, links and headings."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Z_]+=")
_SEPARATORS = frozenset({"|", "||", "&&", ";", "&"})
_REDIRECTIONS = frozenset({">", ">>", "<"})


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return _FENCE.sub("", page.read_text())


def shell_lines(page: Path) -> Iterator[str]:
    """Every line of the page's shell blocks, continued ones joined."""
    for language, block in _FENCE.findall(page.read_text()):
        if language in ("sh", "bash"):
            yield from block.replace("\\\n", " ").splitlines()


def webgym_commands(line: str) -> Iterator[list[str]]:
    """The arguments of each `webgym` in a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    tokens = [*lexer, ";"]
    for position, token in enumerate(tokens):
        if token in _SEPARATORS:
            yield from _of_webgym(words)
            words = []
        elif token not in _REDIRECTIONS and not (position and tokens[position - 1] in _REDIRECTIONS):
            words.append(token)


def _of_webgym(words: list[str]) -> Iterator[list[str]]:
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    if words and Path(words[0]).name == "webgym":
        yield words[1:]


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings can be linked to, as GitHub makes them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings(page)}


def headings(page: Path) -> list[str]:
    return _HEADING.findall(prose(page))


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page).replace("``", ""))


def table_rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, its own head left out."""
    below = page.read_text().split(f"\n{heading}\n", 1)[1]
    lines = [line for line in below.split("\n#", 1)[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells[1:] if not set("".join(row)) <= set("-: ")]
