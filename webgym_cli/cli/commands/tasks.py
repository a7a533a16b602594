"""`webgym tasks`: check task files, draw samples of tasks, make tasks of other systems' files and of failed ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from webgym_cli.cli import completion as complete
from webgym_cli.cli.commands.expand import expand
from webgym_cli.cli.commands.generate import generate
from webgym_cli.cli.commands.try_tasks import require_runnable, try_files
from webgym_cli.cli.manual import command, make_group
from webgym_cli.cli.options import DataOptions, FieldOpt, SettingsOptions, parse_fields
from webgym_cli.cli.output import Output
from webgym_cli.errors import UsageError
from webgym_cli.records.groups import DifficultyBand
from webgym_cli.util.optional import known_or, when
from webgym_cli.util.text import format_count

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings
    from webgym_cli.records.task import Task
    from webgym_cli.tasks.check import FileReport

app = make_group("Check, sample, convert, expand and generate task files.")

FilesArg = Annotated[list[str], typer.Argument(metavar="FILE...", help="Task files (JSON Lines); - for stdin.")]
SourceArg = Annotated[
    str | None,
    typer.Argument(
        metavar="SOURCE",
        help="A task file, miniwob:all, sites:all, ... (default: tasks.train of the settings).",
        autocompletion=complete.tasks,
    ),
]
TryOpt = Annotated[
    bool,
    typer.Option("--try", help="Also open each start page with its login, and run set-up and check before any work."),
]
CountOpt = Annotated[int, typer.Option("-n", "--count", min=1, help="Number of distinct tasks.")]
SamplerOpt = Annotated[
    Literal["uniform", "ratio"] | None,
    typer.Option("--sampler", help="uniform: all tasks equally; ratio: by difficulty band (default: tasks.sampler)."),
]
RatioOpt = Annotated[
    str | None,
    typer.Option("--ratio", metavar="BAND=WEIGHT,...", help="Weights of the bands; implies --sampler ratio."),
]
SeedOpt = Annotated[int | None, typer.Option("--seed", min=0, help="Sampling seed (default: the settings' seed).")]
BandOpt = Annotated[list[DifficultyBand] | None, typer.Option("--band", help="Only tasks of this band. Repeatable.")]
SiteOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude-site", metavar="SITE", help="Exclude tasks starting on this site (example.com). Repeatable."
    ),
]
RawArg = Annotated[
    Path, typer.Argument(metavar="RAW", help="JSON file (a list, one record, or one per line), or a folder of them.")
]
FormatOpt = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="webarena|gsm8k|webvoyager|...",
        help="Format of the records, or one of your plugins' (default: webgym's field names, or those of --field).",
        autocompletion=complete.registry_names("webgym_cli.tasks.registry:TASK_FORMATS"),
    ),
]
OutOpt = Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Output file (default: stdout).")]
AddressOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--site",
        metavar="NAME=URL",
        help="Address of a WebArena site, like shopping=http://host:7770 (default: the settings'); "
        "start=URL: of tasks that name no page. Repeatable.",
    ),
]


@command(app)
def check(files: FilesArg, options: DataOptions, try_: TryOpt = False) -> None:
    """Check task files and report every bad line.

    Exits with 2 if a line is bad. Several files are compared: a test set should share no task with the training set.
    --try starts each task as an episode does; its check must not be a success yet.

    Examples:
      webgym tasks check train.jsonl test.jsonl
      webgym tasks check train.jsonl --json | jq -r 'select(.event=="bad_line").line'
      webgym tasks check tasks.jsonl -c site.yaml --try

    See also: webgym tasks sample, webgym rollout.
    """
    from webgym_cli.tasks.check import Checker, FileReport
    from webgym_cli.tasks.source import open_lines

    settings = options.load()
    output, checker, reports = Output(as_json=options.json), Checker(settings), []
    for file in files:
        report = FileReport({"-": "stdin"}.get(file, file))
        with nullcontext(sys.stdin.buffer) if file == "-" else open_lines(Path(file)) as lines:
            for bad in checker.check(report.file, lines, report):
                if output.as_json:
                    output.data(bad.to_json())
                else:
                    output.text(f"{bad.file}:{bad.line}: {bad.reason}")
        reports.append(report)
        if output.as_json:
            output.data(report.to_json())
        else:
            _show(output, report)
    if bad_lines := sum(report.bad_lines for report in reports):
        raise UsageError(
            format_count(bad_lines, "bad line"), hint=f"fix them, then: webgym tasks check {' '.join(files)}"
        )
    if empty := next((report.file for report in reports if not report.tasks), None):
        raise UsageError(f"{empty}: no task in the file", hint="put one task a line, as JSON")
    if try_:
        try_files(settings, files, output)
    elif "-" not in files and (settings.sites or settings.plugins):
        require_runnable(settings, files)


@command(app)
def sample(
    options: SettingsOptions,
    source: SourceArg = None,
    count: CountOpt = 100,
    sampler: SamplerOpt = None,
    ratio: RatioOpt = None,
    seed: SeedOpt = None,
    band: BandOpt = None,
    exclude_site: SiteOpt = None,
) -> None:
    """Write a sample of distinct tasks to stdout.

    Writes one JSON object per line, in webgym's own format. The same seed gives the same tasks.

    Examples:
      webgym tasks sample train.jsonl -n 500 --seed 3 > some.jsonl
      webgym tasks sample train.jsonl -n 300 --ratio easy=2,medium=5,hard=3 --exclude-site example.com > mixed.jsonl
      webgym tasks sample sites:all -n 10

    See also: webgym tasks check, webgym rollout.
    """
    from webgym_cli.tasks.draw import sample_tasks
    from webgym_cli.tasks.source import open_tasks

    settings, output = options.load(), Output()
    weights = _weights(settings, sampler, ratio)
    sites = [_site(text) for text in exclude_site or ()]
    tasks = open_tasks(source or settings.tasks.train, encrypted=True)
    sample = sample_tasks(
        tasks, count, seed=known_or(seed, settings.seed), ratio=weights, bands=band or (), without_sites=sites
    )
    for task in sample:
        output.text(task.model_dump_json())
    for empty in sample.empty_bands:
        output.note(f"band {empty} has no task to draw; the other bands share its part")
    if len(sample.indices) < count:
        output.note(f"{format_count(len(sample.indices), 'task')}: there are no more that fit")


@command(app)
def convert(
    raw: RawArg,
    options: SettingsOptions,
    format_: FormatOpt = None,
    field: FieldOpt = None,
    out: OutOpt = None,
    site: AddressOpt = None,
) -> None:
    """Convert a benchmark or your own table into a task file.

    Reads JSON, JSON Lines, CSV (comma, semicolon, tab) and Parquet.
    A record that can't be scored as it is written is reported with its number, and nothing is written. Exact repeats
    are left out. Benchmarks whose terms forbid it are refused.

    Examples:
      webgym tasks convert test.raw.json --format webarena --site shopping=http://host:7770 -o webarena.jsonl
      webgym tasks convert config_files --format webarena -c webarena -c sites.yaml > all.jsonl
      webgym tasks convert WebVoyager_data.jsonl --format webvoyager -o webvoyager.jsonl
      webgym tasks convert train.jsonl --format gsm8k -o gsm8k_train.jsonl
      webgym tasks convert own.csv --field instruction=Question --field start_url=URL -o own.jsonl

    See also: webgym tasks check, webgym tasks sample, webgym login.
    """
    from webgym_cli.tasks.check import describe_edition
    from webgym_cli.tasks.convert import convert_fields, parse_start
    from webgym_cli.tasks.registry import TASK_FORMATS

    settings, output = options.load(), Output()
    if format_ is None:
        hint = "--field OURS=THEIRS names your fields, --site start=URL a page, --format a published benchmark"
        converted = convert_fields(raw, parse_fields(field), parse_start(site or ()))
    elif field:
        raise UsageError("--field: a format has its own names", hint="leave --format or --field out")
    else:
        hint = "fix them, then run the same command again"
        converted = TASK_FORMATS.find(format_).convert(raw, settings, site or ())
    for bad in converted.bad:
        output.note(f"{bad.file}:{bad.line}: {bad.reason}")
    if number := len(converted.bad):
        raise UsageError(f"{raw}: {format_count(number, 'bad record')}; nothing was written", hint=hint)
    _write_tasks(output, converted.tasks, out)
    generated = sum(bool(task.extra.get("generated")) and "verified" not in task.extra for task in converted.tasks)
    unscored = when(generated, f", {generated} of them generated: only a reward model can score those")
    repeated = when(converted.repeated, f"; {converted.repeated} left out: exact repeats of earlier ones")
    output.note(
        f"{format_count(len(converted.tasks), 'task')}{unscored}{repeated}; {describe_edition(converted.tasks)}"
    )
    if format_ is None:
        for name in sorted({task.environment for task in converted.tasks if not task.start_url}):
            output.note(f"tasks without a page are of the environment {name}; --site start=URL gives them one")


command(app)(expand)
command(app)(generate)


def _write_tasks(output: Output, tasks: Sequence[Task], out: Path | None) -> None:
    from webgym_cli.store.outputs import check_output
    from webgym_cli.util.files import write_atomic

    lines = [f"{task.model_dump_json()}\n" for task in tasks]
    if out is None:
        for line in lines:
            output.text(line.rstrip("\n"))
        return
    content = "".join(lines).encode()
    check_output(out, content)
    write_atomic(out, content)


def _show(output: Output, report: FileReport) -> None:
    counts = report.to_json()
    shown = ("tasks", "digest", "edition", "bad_lines", "duplicates", "in_earlier_files", "sites", "rubrics")
    rows = [(key.replace("_", " "), counts[key]) for key in shown if counts[key] != ""]
    for key, what in (("by_band", "band"), ("by_environment", "environment")):
        rows.extend((f"{what} {name}", number) for name, number in counts[key].items())
    output.table(report.file, ("", "count"), rows)


def _weights(settings: Settings, sampler: str | None, ratio: str | None) -> dict[DifficultyBand, float] | None:
    """Return the weights of the bands, None for a uniform draw."""
    if ratio is not None:
        if sampler == "uniform":
            raise UsageError("--ratio: the sampler uniform has no ratio", hint="leave one of the two out")
        return _parse_ratio(ratio)
    if (sampler or settings.tasks.sampler) == "uniform":
        return None
    if not any(settings.tasks.difficulty_ratio.values()):
        raise UsageError("--sampler ratio needs weights", hint="--ratio easy=2,medium=5,hard=3")
    return settings.tasks.difficulty_ratio


def _parse_ratio(ratio: str) -> dict[DifficultyBand, float]:
    weights: dict[DifficultyBand, float] = {}
    for part in ratio.split(","):
        name, _, text = part.partition("=")
        try:
            weights[DifficultyBand(name.strip())] = weight = float(text)
        except ValueError:
            weight = -1.0
        if not 0 <= weight < float("inf"):
            raise UsageError(
                f"--ratio: {part!r} is no band (easy, medium, hard) with a weight",
                hint="--ratio easy=2,medium=5,hard=3",
            )
    if not any(weights.values()):
        raise UsageError("--ratio: no weight is above 0", hint="--ratio easy=2,medium=5,hard=3")
    return weights


def _site(text: str) -> str:
    from webgym_cli.util.urls import site_of

    site = site_of(text if "://" in text else f"https://{text}")
    if not site:
        raise UsageError(f"--exclude-site: {text!r} is no site", hint="--exclude-site example.com")
    return site
