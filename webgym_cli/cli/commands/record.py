"""`webgym record`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from webgym_cli.cli.browse import OpenOpt, PortOpt, open_in_browser
from webgym_cli.cli.options import PaidOptions, RunArg

TaskOpt = Annotated[
    str, typer.Option("--task", metavar="ID|FILE", help="Task of tasks.train by its id, or a file or set of tasks.")
]
FromOpt = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", help="Replay recorded actions, ours or those of Playwright's codegen."),
]


def record(
    run: RunArg, task: TaskOpt, options: PaidOptions, from_: FromOpt = None, port: PortOpt = 0, open_: OpenOpt = False
) -> None:
    """Record demonstrations: a person does a task in a browser.

    Serves a page on this machine alone, whose address is the first line of the output. What a person does there is
    replayed in a fresh browser context, and kept if the check or the judge says success.

    Examples:
      webgym record runs/a -c site.yaml --task close-printer --open
      webgym record runs/a --task tasks.jsonl --port 8800
      webgym record runs/a --task close-printer --from codegen.jsonl

    Exit codes: 3, 5, 75, 86.

    See also: webgym rollout, webgym prepare, webgym label.
    """
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.errors import BelowThresholdError
    from webgym_cli.loop.recording import record_demonstrations, select_tasks
    from webgym_cli.record.recording_file import read_recording

    directory, settings = resolve(run, options)
    output = options.open_output()
    actions = read_recording(from_) if from_ else []
    tasks = select_tasks(directory, settings, task)
    if options.dry_run:
        output.show({"event": "plan", "stage": "record", "tasks": [one.id for one in tasks], "actions": len(actions)})
        return

    def opened(url: str) -> None:
        output.text(url)
        output.flush()
        if open_:
            open_in_browser(url, output)

    with stage("record", directory, settings, output) as at:
        kept = at.execute(lambda context: record_demonstrations(context, tasks, actions, port, opened))
    if actions and kept < len(tasks):
        raise BelowThresholdError(
            f"{len(tasks) - kept} of {len(tasks)} replays were no success",
            hint=f"correct {from_}, or drop --from and do the task yourself",
        )
    output.next_step(f"webgym prepare {run}")
