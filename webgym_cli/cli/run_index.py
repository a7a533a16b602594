"""The index for commands whose stdout is data: what opening it has to say goes to stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from webgym_cli.cli.output import Output

if TYPE_CHECKING:
    from webgym_cli.records.events import Event
    from webgym_cli.store.index.query import Index
    from webgym_cli.store.run import RunDir


@contextmanager
def open_run_index(run: RunDir, output: Output, *, rebuilt: bool = False, kept: bool = True) -> Iterator[Index]:
    """Open a run's index, with a bar while it takes in what is new; `rebuilt`: all of it. Raises `StoreError`.

    What it takes in is `kept` in the run, or else in a temporary folder. The bar is gone before the block begins: it
    would stand among the data.
    """
    from webgym_cli.store.index.build import rebuild
    from webgym_cli.store.index.query import open_index
    from webgym_cli.store.index.temporary_index import temporary_index

    with ExitStack() as stack:
        if not kept:
            run = stack.enter_context(temporary_index(run))
        # The bar ends before the block begins: it would stand among the data.
        with output.progress() as board:

            def sink(event: Event) -> None:
                if "message" in event:
                    output.note(str(event["message"]))
                else:
                    board({**event, "transient": True})  # a bar, and never a line of data

            if rebuilt:
                rebuild(run, sink)
            index = stack.enter_context(open_index(run, progress=sink))
        yield index
