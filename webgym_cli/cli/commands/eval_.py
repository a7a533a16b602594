"""`webgym eval`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli import completion as complete
from webgym_cli.cli.options import PaidOptions, format_overrides
from webgym_cli.config.limits import MAX_CHAINS, MAX_EPISODES
from webgym_cli.errors import UsageError
from webgym_cli.records.groups import Split

if TYPE_CHECKING:
    from webgym_cli.cli.output import Output
    from webgym_cli.config.model import Settings
    from webgym_cli.loop.evaluation import Benchmark, EvaluationPlan

SubjectArg = Annotated[
    str,
    typer.Argument(
        metavar="RUN|MODEL|URL", help="A run (its newest policy), a model folder or hub id, servers by URL, or oracle."
    ),
]
BenchmarkOpt = Annotated[
    str,
    typer.Option(
        "-b", "--benchmark", metavar="NAME|FILE", help="Tasks: a file, sites:all, ...", autocompletion=complete.tasks
    ),
]
RepeatsOpt = Annotated[int | None, typer.Option("--repeats", min=1, max=MAX_CHAINS, help="Episodes of each task.")]
EpisodesOpt = Annotated[
    int | None,
    typer.Option(
        "--episodes",
        min=1,
        max=MAX_EPISODES,
        help="Tasks per repeat, drawn by the seed: fewer than there are, or with more seeds (MiniWoB).",
    ),
]
SubsetOpt = Annotated[
    Path | None,
    typer.Option("--subset", metavar="FILE", help="Only the tasks whose ids are in FILE, one a line or a JSON list."),
]
DigestOpt = Annotated[str, typer.Option("--digest", metavar="HEX", help="Refuse tasks of another digest.")]
ProtocolOpt = Annotated[str | None, typer.Option("--protocol", help="Judge protocol (judge.protocol).")]
MaxStepsOpt = Annotated[
    int | None, typer.Option("--max-steps", min=1, help="Step limit of every task without its own.")
]
OutOpt = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="DIR", help="Folder of the evaluation (default: evaluations/..., by content)."),
]
# The shipped settings file of evaluations.
_DEFAULTS = "eval"


def eval_(
    subject: SubjectArg,
    benchmark: BenchmarkOpt,
    options: PaidOptions,
    repeats: RepeatsOpt = None,
    episodes: EpisodesOpt = None,
    subset: SubsetOpt = None,
    digest: DigestOpt = "",
    protocol: ProtocolOpt = None,
    max_steps: MaxStepsOpt = None,
    out: OutOpt = None,
) -> None:
    """Evaluate a policy on a benchmark.

    The episodes are a run of their own, each task three times (--repeats). The result is one JSON record and one HTML
    page, which are never written over. The same command, or webgym resume, does what is missing.

    Examples:
      webgym eval runs/a -b miniwob:all --episodes 200 -o runs/a-miniwob
      webgym eval http://HOST:8000/v1 -b om2w.jsonl --protocol webjudge -s judge.base_url=http://HOST/v1 --max-steps 30
      webgym compare evaluations/a evaluations/b --tasks

    Exit codes: 3, 4, 75, 86.

    See also: webgym compare, webgym judge, webgym tasks convert.
    """
    from webgym_cli.cli.stage import check_command, stage
    from webgym_cli.loop.evaluation import Benchmark, evaluate, plan_evaluation
    from webgym_cli.loop.rollout_setup import check_policy
    from webgym_cli.store.run import RunDir

    source = _locate_tasks(subject, benchmark)
    values = {"rollout.test_repeats": repeats, "judge.protocol": protocol, "tasks.test": source}
    values |= {f"rollout.test_max_steps.{band}": max_steps for band in ("easy", "medium", "hard")}
    settings = _resolve(subject, out, options, values)
    chosen = Benchmark(source, _read_ids(subset) if subset else None, episodes, digest)
    directory = RunDir(out or _name_folder(subject, settings, chosen))
    plan = plan_evaluation(directory, settings, chosen)
    if not directory.conditions.is_file():  # before the run is made, so that the corrected command can make it
        check_policy(settings, settings.rollout.policy, plan.list_tasks(), Split.TEST)
    output = options.open_output()
    own_options = _collect_options(settings, chosen, subset)
    if options.dry_run:
        check_command("eval", directory, settings, own_options, output)
        _show(plan, output)
        return
    with stage("eval", directory, settings, output, own_options) as at:
        at.execute(lambda context: evaluate(context, plan))
    output.note(f"the record: {plan.record}, the page: {plan.record.with_suffix('.html')}")
    output.next_step(f"webgym compare {plan.record} OTHER")


def _show(plan: EvaluationPlan, output: Output) -> None:
    """Print a plan, after a note if nothing scores some of its tasks."""
    from webgym_cli.loop.rollout_setup import list_unscored

    for line in list_unscored(plan.settings, plan.list_tasks()):
        output.note(line)
    output.show(plan.to_json())


def _locate_tasks(subject: str, benchmark: str) -> str:
    """Return the source of the tasks, a file by its absolute path. Raises `UsageError` for empty arguments."""
    if not subject:
        raise UsageError("'' names no run, model or server", hint="webgym eval runs/a -b miniwob:all")
    if not benchmark:
        raise UsageError("-b '' names no tasks", hint=f"webgym eval {subject} -b miniwob:all")
    path = Path(benchmark)
    return str(path.absolute()) if path.is_file() else benchmark


def _resolve(subject: str, out: Path | None, options: PaidOptions, values: dict[str, Any]) -> Settings:
    """Return the settings of an evaluation: a begun one's own, else the evaluated run's, else the defaults."""
    from webgym_cli.cli.stage import trust
    from webgym_cli.config.load import load, load_with_sources
    from webgym_cli.records.series import ORACLE, VLLM
    from webgym_cli.store.checkpoints import locate_model, policy_path
    from webgym_cli.store.find_run import require_readable
    from webgym_cli.store.run import RunDir

    if out:
        require_readable(RunDir(out))
    evaluated = RunDir(Path(subject))
    base = RunDir(out).config if out and RunDir(out).exists else None
    files: tuple[str | Path, ...] = tuple(options.config or ())
    if base is None:
        files = (_DEFAULTS, *files)
    model: str | None = subject
    trained: Settings | None = None
    acting = subject if subject == ORACLE or "://" in subject else VLLM
    if acting != VLLM:
        model = None
    elif evaluated.provenance.is_file():
        require_readable(evaluated)
        if options.trust:
            trust(evaluated)
        trained = load(run_config=evaluated.config)
        model = locate_model(policy_path(evaluated, trained))
        base = base or evaluated.config
    given = {**values, "rollout.policy": acting, "policy_config.base_model": model}
    overrides = [*options.overrides, *format_overrides(given)]
    settings, sources = load_with_sources(files, overrides, run_config=base, executes=True)
    settings.cost.require_prices()
    if trained is not None and base == evaluated.config:
        return _keep_given(settings, trained, sources)
    return settings


def _keep_given(settings: Settings, trained: Settings, sources: dict[str, str]) -> Settings:
    """Return the settings with what the run `trained` was given or derived of its model, whose newest policy is meant.

    Else it would be derived anew of the policy's folder: a call format of the run's would be another in its evaluation.
    """
    from webgym_cli.config.model_defaults import MODEL_DEPENDENT

    for key in MODEL_DEPENDENT:
        section, name = key.split(".")
        if sources[key].startswith(("run ", "model ", "default")):
            settings = settings.with_changes(**{section: {name: getattr(getattr(trained, section), name)}})
    return settings


def _collect_options(settings: Settings, chosen: Benchmark, subset: Path | None) -> dict[str, Any]:
    """Return the options of a resumed evaluation, which does not follow a run that was trained on."""
    return {
        "subject": settings.subject,
        "benchmark": chosen.source,
        "digest": chosen.digest,
        "episodes": chosen.episodes,
        "subset": subset and str(subset.absolute()),
    }


def _name_folder(subject: str, settings: Settings, benchmark: Any) -> Path:
    """Return the default folder: equal for an equal evaluation, another one for every other."""
    from webgym_cli.loop.conditions import describe_conditions
    from webgym_cli.loop.evaluation import draw_episodes
    from webgym_cli.store.run import RunDir
    from webgym_cli.util.json_values import digest_json

    nowhere = RunDir(Path("evaluations"))
    conditions = describe_conditions(nowhere, settings, benchmark.source, draw_episodes(settings, benchmark))
    names = (Path(subject.partition("://")[2] or subject).name, Path(benchmark.source).stem)
    words = (re.sub(r"[^\w.-]+", "-", name).strip("-") for name in names)
    return nowhere.root / "-".join([*words, digest_json(conditions)[:8]])


def _read_ids(file: Path) -> set[str]:
    """Return the ids of a file: one a line, or a JSON list, also as `task_ids` of an object (WebArena-Verified)."""
    from webgym_cli.util.json_values import as_object, parse_nested

    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--subset: {file} can't be read: {reason}", hint="one id a line") from None
    value = parse_nested(text)
    listed = as_object(value).get("task_ids", value)
    ids = {str(one).strip() for one in (listed if isinstance(listed, list) else text.splitlines())} - {""}
    if not ids:
        raise UsageError(f"--subset: {file} names no task", hint="one id a line")
    return ids
