"""`webgym tasks expand`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from webgym_cli.cli.options import DataOptions
from webgym_cli.cli.output import Output

TemplatesArg = Annotated[Path, typer.Argument(metavar="TEMPLATES", help="YAML file with templates and parameters.")]
OutOpt = Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="Task file to write.")]


def expand(templates: TemplatesArg, options: DataOptions, out: OutOpt) -> None:
    """Write the tasks of templates.

    Each template is filled in with all combinations of its parameters' values. A task with a held-out value is in the
    test set, FILE with .test before its ending.

    Examples:
      webgym tasks expand templates.yaml -o tasks.jsonl
      webgym tasks check tasks.jsonl tasks.test.jsonl

    See also: webgym tasks check, webgym rollout.
    """
    from webgym_cli.store.outputs import check_output
    from webgym_cli.tasks.expand import expand_templates
    from webgym_cli.util.files import write_atomic

    options.load()  # environments of plugins read their own tasks
    output, expanded = Output(as_json=options.json), expand_templates(templates)
    files = {out: expanded.train, out.with_name(f"{out.stem}.test{out.suffix}"): expanded.test}
    contents = {
        file: "".join(f"{task.model_dump_json()}\n" for task in tasks).encode()
        for file, tasks in files.items()
        if tasks or file == out
    }
    for file, content in contents.items():
        check_output(file, content)
    for file, content in contents.items():
        write_atomic(file, content)
        row = {"event": "expanded", "file": str(file), "tasks": len(files[file])}
        if options.json:
            output.data(row)
        else:
            output.note(f"{file}: {len(files[file])} tasks")
    output.next_step(f"webgym tasks check {' '.join(map(str, contents))}")
