"""The pages name what there is: commands, settings, files, links."""

import re
from typing import Any

import pytest
import typer.main

from tests.app import app
from tests.docs.pages import PAGES, ROOT, anchors, inline_code, links, name, prose, shell_lines, webgym_commands
from webgym_cli.config.load import known_keys, load
from webgym_cli.config.model import Settings
from webgym_cli.config.renamed import RENAMED
from webgym_cli.config.shipped import shipped_root

COMMANDS = [(page, line, args) for page in PAGES for line in shell_lines(page) for args in webgym_commands(line)]
SETTING = re.compile(r"^(?:-s )?'?([a-z_]+(?:\.[a-z_0-9]+)+)(?:=.*)?$")
FILE_ENDS = ("jsonl", "json", "log", "yaml", "py", "md", "parquet", "txt")
"""`train.jsonl` is a file, though `train` is a section."""


def parsed(args: list[str]) -> Any:
    """The context of a command line, nothing run."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("webgym", list(args))
    while hasattr(command, "commands"):
        word, *rest = [*context._protected_args, *context.args]
        assert word in command.commands, f"no command {word}"
        command = command.commands[word]
        context = command.make_context(word, rest, parent=context)
    return context


@pytest.mark.parametrize(("page", "line", "args"), COMMANDS, ids=lambda part: part if isinstance(part, str) else "")
def test_a_command_in_a_block_is_one_with_settings_that_there_are(page, line, args):
    context = parsed(args)
    files = [file for file in context.params.get("config") or () if (shipped_root() / f"{file}.yaml").is_file()]
    # the reader's own files are not here
    load(files, [given for given in context.params.get("set_") or () if not given.startswith("plugins=")])


def test_there_are_commands_in_blocks():
    assert {name(page) for page, _, _ in COMMANDS} >= {"README.md", "docs/quick-start.md", "docs/gpu-host.md"}


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


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_command_in_the_text_is_one(page):
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for code in inline_code(page):
        if match := re.match(r"webgym ([a-z][a-z-]*)", code):
            assert match[1] in known, code


def test_the_table_of_commands_names_options_of_the_command():
    rows = re.findall(r"^\| `webgym (.*)$", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)
    assert len(rows) > 30
    for row in rows:
        command: Any = typer.main.get_command(app)
        words = row.split()
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0).strip("`")]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {*re.findall(r"--[a-z-]+", row)} <= options, row


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_setting_in_the_text_is_one(page):
    keys = {*known_keys(), *(RENAMED if name(page) == "docs/settings.md" else ())}
    for code in inline_code(page):
        match = SETTING.match(code)
        if not match or match[1].split(".")[0] not in Settings.model_fields or match[1].endswith(FILE_ENDS):
            continue
        key = match[1]
        assert key in keys or any(known.startswith(f"{key}.") or key.startswith(f"{known}.") for known in keys), code


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_link_leads_somewhere(page):
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_file_under_configs_is_there(page):
    for match in re.findall(r"configs/[\w./-]*\w", page.read_text()):
        assert (ROOT / match).exists(), match


def test_the_index_has_every_page():
    index = ROOT / "docs/README.md"
    wanted = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert {link.partition("#")[0] for link in links(index)} >= wanted


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_is_for_people_anywhere(page):
    assert not re.search(r"(?<![\w.])/(?:work|root|tmp)/", prose(page))
