"""The only place that writes to stdout and stderr.

stdout carries data: a table for people, JSON Lines with `--json` or into a pipe, ids with `-q`.
stderr carries everything else: progress, notes, hints, errors.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from webgym_cli.cli.streams import share_one_file, stderr_or_nothing
from webgym_cli.util.json_values import as_text, encode_json
from webgym_cli.util.optional import known_or, when
from webgym_cli.util.text import escape_control, replace_control

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress

    from webgym_cli.cli.live_view import LiveView
    from webgym_cli.records.events import Event

# Refreshes of the live bars per second.
_REFRESH = 2
# Control characters that JSON does not escape and a terminal interprets.
_CONTROL = re.compile("[\x7f-\x9f]")


class Output:
    """The output of a command. `as_json`: data is written as JSON Lines instead of text."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        """Data as JSON Lines."""
        self.quiet = quiet
        """No notes, no progress; data as ids."""
        self._has_table = False

    @classmethod
    def for_events(cls, as_json: bool) -> Output:
        """Return the output of a long command: JSON Lines also where stdout is a pipe or a file of its own."""
        # If stderr is the same file, each event would appear twice.
        return cls(as_json=as_json or not (sys.stdout.isatty() or share_one_file()))

    def data(self, value: Any) -> None:
        """Write one record as a line of JSON on stdout."""
        line = encode_json(value, ensure_ascii="utf" not in sys.stdout.encoding.lower())
        self.text(_CONTROL.sub(lambda letter: f"\\u{ord(letter[0]):04x}", line))

    def text(self, line: str) -> None:
        """Write one line on stdout."""
        sys.stdout.write(f"{line}\n")

    def flush(self) -> None:
        """Flush stdout."""
        sys.stdout.flush()

    def show(self, value: dict[str, Any]) -> None:
        """Write one object: a line of JSON, or keys and values for users."""
        if self.as_json:
            self.data(value)
        else:
            rows = ((key, as_text(item, ensure_ascii=True)) for key, item in value.items())
            self.table("", ("", ""), rows)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a table to stdout; into a pipe tab-separated lines, with titles between several tables."""
        # A pipe gets untruncated values without borders.
        if not sys.stdout.isatty():
            for position, row in enumerate(rows):
                if self._has_table and not position:
                    self.text(f"# {escape_control(title)}")
                self.text("\t".join(escape_control(str(known_or(cell, ""))) for cell in row))
            self._has_table = True
            return
        self._print_table(_console(sys.stdout), title, columns, rows)

    def summary_table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a table to stderr: the summary of a command that writes events to stdout."""
        if not self.quiet:
            with stderr_or_nothing():
                self._print_table(_console(sys.stderr), title, columns, rows)

    @staticmethod
    def _print_table(console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        from rich import box
        from rich.measure import Measurement
        from rich.table import Table

        table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for position, column in enumerate(columns):
            justify: Literal["left", "right"] = "right" if position else "left"
            table.add_column(column, justify=justify, overflow="fold", no_wrap=not position)
        cells = [[escape_control(str(known_or(cell, ""))) for cell in row] for row in rows]
        for row in cells:
            table.add_row(*row)
        if Measurement.get(console, console.options.update(max_width=10_000), table).minimum <= console.width:
            console.print(table)
            return
        # A table that is too narrow for its words would stack their letters.
        console.print(title)
        for row in cells:
            console.print(row[0])
            for column, cell in zip(columns[1:], row[1:], strict=False):
                console.print(f"  {column}: {cell}")

    def note(self, message: str) -> None:
        """Write a message to stderr."""
        if not self.quiet:
            _write_line(message)

    def confirm(self, question: str) -> bool:
        """Ask the user for consent; without a terminal the answer is no."""
        import typer

        return sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm(question, err=True)

    def next_step(self, command: str) -> None:
        """Write the suggested next command on stderr."""
        self.note(f"next: {_quote_arguments(command)}")

    def event(self, event: Event) -> None:
        """Write an event: as JSON to stdout, or as one plain line to stderr if it is for users."""
        if event.get("transient"):
            return
        if self.as_json:
            self.data(event)
            sys.stdout.flush()
        if message := event.get("message"):
            self.note(str(message))

    def draw(self, picture: RenderableType) -> None:
        """Render something on stdout, which is a terminal."""
        _console(sys.stdout).print(picture)

    @contextmanager
    def open_redraw(self) -> Iterator[Callable[[RenderableType], None]]:
        """Yield a function that redraws in place on stdout, which is a terminal."""
        from rich.live import Live

        with Live(console=_console(sys.stdout), auto_refresh=False) as live:
            yield lambda picture: live.update(picture, refresh=True)

    @contextmanager
    def progress(self) -> Iterator[ProgressBoard]:
        """Show live progress bars on stderr while the block runs; nothing if stderr is not a terminal."""
        board = ProgressBoard(self)
        with board.show_live():
            yield board


class ProgressBoard:
    """Turns events into bars and a board, live on stderr.

    An event with `done` and `total` moves the bar named by its `bar` or `event`. An event `status` is a rollout's
    snapshot: it is drawn as the board, which replaces the rollout's bar until the rollout's summary event. Concurrent
    training and evaluation rollouts share one board.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._bars: Progress | None = None
        self._board: LiveView | None = None
        self._snapshots: dict[str, Event] = {}
        """By split."""
        self._tasks: dict[str, Any] = {}

    @contextmanager
    def show_live(self) -> Iterator[None]:
        """Render live while the block runs, if stderr is a terminal."""
        if self._output.quiet or not _live(sys.stderr):
            yield
            return
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console = _console(sys.stderr)
        bars = Progress(*columns, TextColumn("{task.fields[facts]}"), console=console, auto_refresh=False)
        self._bars = bars
        with Live(
            get_renderable=lambda: self._picture(bars),
            console=console,
            refresh_per_second=_REFRESH,
            redirect_stdout=sys.stdout.isatty(),  # else rich would send the data to stderr
        ):
            try:
                yield
            finally:
                self._snapshots.clear()
                self._show()

    def __call__(self, event: Event) -> None:
        """Process one event."""
        if self._bars is None:
            self._output.event(event)
            return
        if event.get("event") == "status":
            self._snapshots[str(event.get("split"))] = event
            self._show()
            return
        # The bars are on stderr; the data still goes to stdout.
        if self._output.as_json and not event.get("transient"):
            self._output.data(event)
        if event.get("event") == "rollout":
            self._end(str(event.get("split")), event.get("iteration"))
        if "total" in event:
            self._move(event, self._bars)
        elif message := event.get("message"):
            self._bars.console.print(replace_control(str(message)), markup=False, highlight=False)

    def _end(self, split: str, iteration: object) -> None:
        """Remove a rollout's snapshot; that of an asynchronous loop is kept when a later window of it ends."""
        if split in self._snapshots and self._snapshots[split].get("iteration") == iteration:
            del self._snapshots[split]
            self._show()

    def _show(self) -> None:
        """Update the board from the newest snapshots, or remove it."""
        from webgym_cli.cli.live_view import LiveView

        shown = [dict(snapshot) for _, snapshot in sorted(self._snapshots.items(), reverse=True)]  # train before test
        first, beside = (*shown, None, None)[:2]
        self._board = LiveView(first, beside) if first else None
        for name, task in self._tasks.items():
            if self._bars is not None:
                self._bars.update(task, visible=self._has_bar(name))

    def _has_bar(self, name: str) -> bool:
        return self._board is None or name not in self._board.bars

    def _picture(self, bars: Progress) -> RenderableType:
        """Return the live renderable. Called from rich's thread, so the board may be removed at any time."""
        from rich.console import Group

        if (board := self._board) is None:
            return bars
        shown = sum(task.visible for task in bars.tasks)
        return Group(replace(board, below=shown), *when(shown, [bars]))

    def _move(self, event: Event, bars: Progress) -> None:
        name = str(event.get("bar", event["event"]))
        if name not in self._tasks:
            self._tasks[name] = bars.add_task(name, total=event["total"], facts="", visible=self._has_bar(name))
        facts = str(event.get("facts", ""))
        bars.update(self._tasks[name], completed=event["done"], total=event["total"], facts=facts)


def fail(message: str, hint: str = "") -> None:
    """Write an error and its hint on stderr."""
    _write_line(f"webgym: {message}")
    if hint:
        _write_line(f"  next: {_quote_arguments(hint)}")


def _quote_arguments(hint: str) -> str:
    """Quote the arguments of this command within a hint that a shell would split or expand."""
    words = [*chain.from_iterable((word, word.partition("=")[2]) for word in sys.argv[1:])]
    typed = {text for text in words if text[1:]}
    paths = {os.path.abspath(text) for text in words}  # noqa: PTH100 - links stay as they are; of `.` too
    special = sorted((text for text in typed | paths if shlex.quote(text) != text), key=len, reverse=True)
    if not special:
        return hint
    # Skips quoted parts, and takes the rest of a longer path: the word `eval` is also the beginning of `evaluations/a`.
    pattern = rf"(?<!['\"])(?:{'|'.join(map(re.escape, special))})(?:[\w./-]*\w)?(?!['\"])"
    return re.sub(pattern, lambda match: shlex.quote(match[0]), hint)


def _write_line(line: str) -> None:
    """Write a line on stderr; errors of a full or closed stderr are ignored."""
    with stderr_or_nothing():
        sys.stderr.write(f"{replace_control(line)}\n")


def _live(stream: Any) -> bool:
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def _console(stream: Any) -> Console:
    from rich.console import Console

    return Console(
        file=stream,
        highlight=False,
        markup=False,  # texts of pages and tasks are not markup
        emoji=False,
        soft_wrap=not stream.isatty(),
        width=None if stream.isatty() else 160,
    )
