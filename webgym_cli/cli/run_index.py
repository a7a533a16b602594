"""Opens the index for commands whose stdout is data: its progress and notes go to stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from webgym_cli.cli.output import Output

if TYPE_CHECKING:
    from webgym_cli.records.events import Event, EventSink
    from webgym_cli.store.index.query import Index
    from webgym_cli.store.run import RunDir


@contextmanager
def open_run_index(
    run: RunDir, output: Output, *more: RunDir, rebuilt: bool = False, kept: bool = True
) -> Iterator[Index]:
    """Open a run's index and update it, with a progress bar; `rebuilt`: rebuild it. Raises `StoreError`.

    `more`: runs in the same tables. With `kept` the updated index is stored in the run, else in a temporary folder.
    """
    from webgym_cli.store.index.build import rebuild
    from webgym_cli.store.index.query import open_index, temporary_index

    with ExitStack() as stack:
        if not kept:
            run = stack.enter_context(temporary_index(run))
        # The bar is removed before the block begins, so that it does not mix with the data.
        with _show_progress(output) as sink:
            if rebuilt:
                rebuild(run, sink)
            index = stack.enter_context(open_index(run, *more, progress=sink))
        yield index


def update_run_index(run: RunDir, output: Output, stack: ExitStack) -> RunDir:
    """Update a run's index, with a progress bar; return the run to open. Raises `StoreError`.

    `stack`: keeps the temporary index of a run that can't be written.
    """
    from webgym_cli.store.index.query import update_or_copy

    with _show_progress(output) as sink:
        return update_or_copy(run, sink, stack)


@contextmanager
def _show_progress(output: Output) -> Iterator[EventSink]:
    """Yield a sink whose messages are notes, and whose other events are a bar alone, never data."""
    with output.progress() as board:

        def sink(event: Event) -> None:
            if "message" in event:
                output.note(str(event["message"]))
            else:
                board({**event, "transient": True})

        yield sink
