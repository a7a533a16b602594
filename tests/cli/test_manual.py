"""Every command's help is a page of the same form."""

import inspect
import re

import typer.main

from tests.app import app
from tests.docs.pages import webgym_commands
from tests.docs.test_pages import check_command
from webgym_cli.cli.manual import GENERAL, parse_docstring
from webgym_cli.cli.output import Output
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
PAGES = {name: parse_docstring(command.help) for name, command in COMMANDS.items()}


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


def test_the_summary_is_one_sentence_that_fits():
    room = WIDTH - 4 - max(map(len, COMMANDS))
    for name, page in PAGES.items():
        assert re.fullmatch(r"[A-Z][^.]*(?:\.\w[^.]*)*\.", page.summary) and len(page.summary) <= room, name


def test_there_are_examples_of_the_command_that_parse_each_on_a_line_of_its_own():
    for name, page in PAGES.items():
        lines, own = shown(COMMANDS[name]).splitlines(), 0
        for line in page.examples:
            assert f"  {line}" in lines, name
            calls = list(webgym_commands(line))
            assert calls, line
            own += sum(check_command(words).command_path.split(" ", 1)[1] == name for words in calls)
        assert own >= 1, name


def test_everything_that_can_be_given_is_explained_and_shared_options_come_last_in_one_order():
    for name, command in COMMANDS.items():
        given = [one for one in command.params if one.name != "help"]
        for one in given:
            assert re.match(r"[A-Za-z].*\.$", one.help, re.DOTALL), (name, one.name)
        names = [one.name for one in given]
        shared = [one for one in SHARED if one in names]
        assert names[len(names) - len(shared) :] == shared, name


def test_related_commands_and_exit_codes_are_there():
    for name, page in PAGES.items():
        related = {known.removeprefix("webgym ") for known in page.see_also}
        assert related and related <= set(COMMANDS) - {name}, name
        assert set(page.exit_codes) <= set(EXIT_CODES), name
        lines = re.sub(" +", " ", shown(COMMANDS[name])).splitlines()
        assert {f" {code} {EXIT_CODES[code]}" for code in page.exit_codes} <= set(lines), name


def test_a_command_that_wants_a_run_says_what_happens_without():
    """3, but for those that make one; and 75 for those that hold it."""
    for name, command in COMMANDS.items():
        source, exit_codes = inspect.getsource(inspect.unwrap(command.callback)), PAGES[name].exit_codes
        needs_run = any(word in source for word in ("open_run(", "required=True", "MissingStage"))
        assert 3 in exit_codes or not needs_run, name
        assert (75 in exit_codes) == any(word in source for word in HOLDING), name


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
