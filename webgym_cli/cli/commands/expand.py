"""`webgym tasks expand`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from webgym_cli.cli.options import DataOptions, DryRunOpt
from webgym_cli.cli.output import Output
from webgym_cli.util.optional import when

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings
    from webgym_cli.tasks.expand import TaskTemplates

TemplatesArg = Annotated[Path, typer.Argument(metavar="TEMPLATES", help="YAML file with templates and parameters.")]
OutOpt = Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="Task file to write.")]
ParaphrasesOpt = Annotated[
    int,
    typer.Option("--paraphrases", metavar="N", min=0, help="Ask a model (generate) for N more wordings a template."),
]


def expand(
    templates: TemplatesArg,
    options: DataOptions,
    out: OutOpt,
    paraphrases: ParaphrasesOpt = 0,
    dry_run: DryRunOpt = False,
) -> None:
    """Write the tasks of templates.

    Each template is filled in with all combinations of its parameters' values. A task with a held-out value is in the
    test set, FILE with .test before its ending. With --paraphrases a model rewords each template's instruction; a
    wording that lacks a value is dropped. Answers are in FILE.asked.jsonl: run again, the command asks for the others.

    Examples:
      webgym tasks expand templates.yaml -o tasks.jsonl
      webgym tasks check tasks.jsonl tasks.test.jsonl
      webgym tasks expand templates.yaml -o tasks.jsonl --paraphrases 4 -s generate.base_url=http://HOST/v1

    See also: webgym tasks check, webgym rollout, webgym tasks generate.
    """
    from webgym_cli.store.outputs import check_output
    from webgym_cli.tasks.expand import expand_templates, read_templates
    from webgym_cli.util.files import write_atomic

    settings = options.load()  # environments of plugins read their own tasks
    output, given = Output(as_json=options.json), read_templates(templates)
    expanded = expand_templates(templates, given)  # a bad file is refused before a model is asked
    if paraphrases and not dry_run:
        given = _paraphrase(settings, given, paraphrases, out, output)
        expanded = expand_templates(templates, given)
    files = {out: expanded.train, out.parent / f"{out.stem}.test{out.suffix}": expanded.test}
    contents = {
        file: "".join(f"{task.model_dump_json()}\n" for task in tasks).encode()
        for file, tasks in files.items()
        if tasks or file == out
    }
    for file, content in contents.items():
        check_output(file, content)
    if dry_run:
        counts = {"templates": len(given.templates), "train": len(expanded.train), "test": len(expanded.test)}
        requests = when(paraphrases, len(given.templates))
        output.show({"event": "plan", "stage": "expand", **counts, "requests": requests})
        return
    for file, content in contents.items():
        write_atomic(file, content)
        if options.json:
            output.data({"event": "expanded", "file": str(file), "tasks": len(files[file])})
        else:
            output.note(f"{file}: {len(files[file])} tasks")
    output.next_step(f"webgym tasks check {' '.join(map(str, contents))}")


def _paraphrase(settings: Settings, given: TaskTemplates, count: int, out: Path, output: Output) -> TaskTemplates:
    """Return the templates with paraphrases; note those that are dropped."""
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.loop.generation import paraphrase

    paraphrased, dropped = run_async(paraphrase(settings, given, count, out))
    for line in dropped:
        output.note(line)
    return paraphrased
