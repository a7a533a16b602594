"""The pages name what there is: commands, settings, files, links."""

import re
from functools import cache
from typing import Any

import pytest
import typer.main

from tests.app import app
from tests.docs.pages import PAGES, ROOT, anchors, inline_code, links, name, prose, shell_lines, webgym_commands
from webgym_cli.config.load import known_keys, load
from webgym_cli.config.model import Settings
from webgym_cli.config.renamed import RENAMED
from webgym_cli.config.shipped import shipped_root

COMMANDS = [(name(page), args) for page in PAGES for line in shell_lines(page) for args in webgym_commands(line)]
CODES = [(name(page), code) for page in PAGES for code in inline_code(page)]
LINKS = [(page, link) for page in PAGES for link in links(page)]
SETTING = re.compile(r"^(?:-s )?'?([a-z_]+(?:\.[a-z_0-9]+)+)(?:=.*)?$")
FILE_ENDS = ("jsonl", "json", "log", "yaml", "py", "md", "parquet", "txt")
"""`train.jsonl` is a file, though `train` is a section."""


@cache
def main() -> Any:
    """All commands; to build them takes as long as to parse fifty lines."""
    return typer.main.get_command(app)


def parsed(args: list[str]) -> Any:
    """The context of a command line, nothing run."""
    command = main()
    context = command.make_context("webgym", list(args))
    while hasattr(command, "commands"):
        word, *rest = [*context._protected_args, *context.args]
        assert word in command.commands, f"no command {word}"
        command = command.commands[word]
        context = command.make_context(word, rest, parent=context)
    return context


def check_command(args: list[str]) -> typer.Context:
    """Raise where it is no command, or has settings that there are not."""
    context = parsed(args)
    files = [file for file in context.params.get("config") or () if (shipped_root() / f"{file}.yaml").is_file()]
    # the reader's own files are not here
    load(files, [given for given in context.params.get("set_") or () if not given.startswith("plugins=")])
    return context


def test_a_command_in_a_block_is_one_with_settings_that_there_are():
    assert {page for page, _ in COMMANDS} >= {"README.md", "docs/quick-start.md", "docs/gpu-host.md"}
    # the same words on several pages, or in another run, are the same command
    seen = {tuple(re.sub(r"^runs/\S+$", "runs/x", word) for word in args): (page, args) for page, args in COMMANDS}
    for page, args in seen.values():
        try:
            check_command(args)
        except Exception as error:
            raise AssertionError(f"{page}: webgym {' '.join(args)}") from error


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("webgym show runs/a x --open   # one page", [["show", "runs/a", "x", "--open"]]),
        ("A=1 .venv/bin/webgym config schema > x.md && ls", [["config", "schema"]]),
        ("webgym inspect-buffer r -q | webgym judge r -", [["inspect-buffer", "r", "-q"], ["judge", "r", "-"]]),
        ("webgym rollout r -s 'tasks.x=[\"easy\"]'", [["rollout", "r", "-s", 'tasks.x=["easy"]']]),
        ("echo webgym", []),
    ],
)
def test_commands_are_found_in_shell_lines(line, values):
    assert list(webgym_commands(line)) == values


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["rollout", "runs/a", "--no-such-option"], "No such option"),
        (["judge"], "Missing"),
        (["config", "nothing"], "no command"),
    ],
)
def test_a_command_that_is_none_is_refused(args, says):
    with pytest.raises(Exception, match=says):
        parsed(args)


def test_a_command_in_the_text_is_one():
    known = main().commands
    for page, code in CODES:
        if match := re.match(r"webgym ([a-z][a-z-]*)", code):
            assert match[1] in known, (page, code)


def test_the_table_of_commands_names_options_of_the_command():
    rows = re.findall(r"^\| `webgym (.*)$", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)
    assert len(rows) > 30
    for row in rows:
        command = main()
        words = row.split()
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0).strip("`")]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {*re.findall(r"--[a-z-]+", row)} <= options, row


def test_a_setting_in_the_text_is_one():
    for page, code in CODES:
        keys = {*known_keys(), *(RENAMED if page == "docs/settings.md" else ())}
        match = SETTING.match(code)
        if not match or match[1].split(".")[0] not in Settings.model_fields or match[1].endswith(FILE_ENDS):
            continue
        key = match[1]
        parts = (known.startswith(f"{key}.") or key.startswith(f"{known}.") for known in keys)
        assert key in keys or any(parts), (page, code)


def test_a_link_leads_somewhere():
    for page, link in LINKS:
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), (page, link)
        if anchor:
            assert anchor in anchors(target), (page, link)


def test_a_file_under_configs_is_there():
    files = {file for page in PAGES for file in re.findall(r"configs/[\w./-]*\w", page.read_text())}
    assert {file for file in files if not (ROOT / file).exists()} == set()


def test_the_index_has_every_page():
    index = ROOT / "docs/README.md"
    wanted = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert {link.partition("#")[0] for link in links(index)} >= wanted


def test_a_page_is_for_people_anywhere():
    assert [page for page in PAGES if re.search(r"(?<![\w.])/(?:work|root|tmp)/", prose(page))] == []
