"""Every command's help is a page of the same form."""

import inspect
import re

import pytest
import typer.main

from tests.app import app
from tests.docs.pages import webgym_commands
from tests.docs.test_pages import parsed
from webgym_cli.cli.manual import GENERAL, parse_docstring
from webgym_cli.cli.output import Output
from webgym_cli.config.load import load
from webgym_cli.config.shipped import shipped_root
from webgym_cli.errors import EXIT_CODES

SHARED = ["config", "set_", "json", "quiet", "dry_run"]
"""In this order, at the end."""
HOLDING = ("with stage(", " work(", "lock_run(", "validate_call(command)")
"""One of them is where a command's function holds its run: directly, by what `loop` and `curriculum` share, or by
another command's function."""
WIDTH = 80


def leaves():
    for name, command in typer.main.get_command(app).commands.items():
        if command.hidden:
            continue
        for below, leaf in getattr(command, "commands", {"": command}).items():
            yield f"{name} {below}".strip(), leaf


COMMANDS = dict(leaves())
every = pytest.mark.parametrize(("name", "command"), COMMANDS.items(), ids=list(COMMANDS))


def shown(command):
    return command.get_help(typer.Context(command, info_name="webgym", terminal_width=WIDTH))


def test_a_docstring_is_read_as_a_page():
    help_page = parse_docstring(
        """Do it.

        At length,
        and well.

        Examples:
          webgym do it
          webgym do --all | head

        Exit codes: 5, 3.

        See also: webgym undo, webgym do not.
        """
    )
    assert (help_page.summary, help_page.prose) == ("Do it.", ("At length,\nand well.",))
    assert help_page.examples == ("webgym do it", "webgym do --all | head")
    assert help_page.exit_codes == (0, 1, 2, 3, 5, 130, 143)
    assert help_page.see_also == ("webgym undo", "webgym do not")
    assert parse_docstring("Do it.").exit_codes == GENERAL


@every
def test_the_summary_is_one_sentence_that_fits(name, command):
    summary = parse_docstring(command.help).summary
    assert re.fullmatch(r"[A-Z][^.]*(?:\.\w[^.]*)*\.", summary), summary
    longest = max(len(other) for other in COMMANDS)
    assert len(summary) + longest + 4 <= WIDTH


@every
def test_there_are_examples_of_the_command_that_parse(name, command):
    examples = parse_docstring(command.help).examples
    assert examples
    own = 0
    for line in examples:
        calls = list(webgym_commands(line))
        assert calls, line
        for words in calls:
            context = parsed(words)
            own += context.command_path.split(" ", 1)[1] == name
            files = [file for file in context.params.get("config") or () if (shipped_root() / f"{file}.yaml").is_file()]
            load(files, context.params.get("set_") or ())
    assert own >= 1


@every
def test_each_example_stands_on_a_line_of_its_own(name, command):
    lines = shown(command).splitlines()
    for example in parse_docstring(command.help).examples:
        assert f"  {example}" in lines


@every
def test_everything_that_can_be_given_is_explained(name, command):
    for given in command.params:
        if given.name != "help":
            assert re.match(r"[A-Za-z]", given.help), given.name
            assert given.help.endswith("."), given.name


@every
def test_shared_options_come_last_in_one_order(name, command):
    names = [given.name for given in command.params if given.name in SHARED]
    assert names == [shared for shared in SHARED if shared in names]
    assert [given.name for given in command.params if given.name != "help"][-len(names) or None :] == names or not names


@every
def test_related_commands_and_exit_codes_are_there(name, command):
    help_page = parse_docstring(command.help)
    assert help_page.see_also
    assert {known.removeprefix("webgym ") for known in help_page.see_also} <= set(COMMANDS) - {name}
    assert set(help_page.exit_codes) <= set(EXIT_CODES)
    help_ = shown(command)
    for code in help_page.exit_codes:
        assert re.search(rf"^  {code} +{re.escape(EXIT_CODES[code])}$", help_, re.MULTILINE)


@every
def test_a_command_that_wants_a_run_says_what_happens_without(name, command):
    """3, but for those that make one; and 75 for those that hold it."""
    source = inspect.getsource(inspect.unwrap(command.callback))
    exit_codes = parse_docstring(command.help).exit_codes
    assert not any(word in source for word in ("open_run(", "required=True", "MissingStage")) or 3 in exit_codes
    assert (75 in exit_codes) == any(word in source for word in HOLDING)


def test_the_whole_is_listed_by_what_it_is_for():
    panels = re.findall(r"^(\w[\w ]*):\n((?:  .*\n?)+)", shown(typer.main.get_command(app)), re.MULTILINE)
    titles = [title for title, _ in panels]
    assert titles == ["Options", "Pipeline", "Look", "Exchange", "Set up", "Exit codes"]
    named = [line.split()[0] for title, body in panels[1:-1] for line in body.splitlines()]
    assert sorted(named) == sorted({name.split()[0] for name in COMMANDS})
    assert [int(line.split()[0]) for line in panels[-1][1].splitlines()] == list(EXIT_CODES)


def test_lines_are_not_wrapped_into_a_pipe(capsys):
    Output().table("", ("a", "b"), [("x" * 500, None), (1, "y" * 500)])
    assert capsys.readouterr().out == f"{'x' * 500}\t\n1\t{'y' * 500}\n"
