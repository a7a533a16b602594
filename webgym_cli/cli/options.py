"""Options shared by commands, and ids of trajectories, also from stdin."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import wraps
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webgym_cli.cli import completion as complete
from webgym_cli.cli.output import Output
from webgym_cli.errors import UsageError, WebGymError
from webgym_cli.util.optional import when

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings


def parse_run(text: str) -> Path:
    """Return a run's folder. Raises `typer.BadParameter` for an empty name, which would be the current folder."""
    if not text.strip():
        raise typer.BadParameter("empty: name the run's folder")
    # the line of a message, or a command to type next, contains the name
    if text.splitlines() != [text]:
        raise typer.BadParameter("a line break: name the run's folder by one line")
    run = Path(text)  # without `./`
    return run.absolute() if str(run).startswith("-") else run  # a command to type next would have it as an option


def parse_fields(fields: list[str] | None) -> dict[str, str]:
    """Return our name -> theirs of each `--field`."""
    return dict(text.partition("=")[::2] for text in fields or ())


def format_overrides(values: Mapping[str, Any]) -> list[str]:
    """Return settings by dotted key as KEY=VALUE, as `-s` takes them; None: not given."""
    # as JSON, so that a folder named 2024 is no number
    return [f"{key}={json.dumps(value)}" for key, value in values.items() if value is not None]


def refuse_both(options: Mapping[str, bool]) -> None:
    """Raise `UsageError` if more than one of these options is given."""
    given = [name for name, is_given in options.items() if is_given]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other")


def refuse_without_effect(form: str, options: Mapping[str, bool]) -> None:
    """Raise `UsageError` for a given option that has no effect in this form of the command."""
    if name := next((name for name, is_given in options.items() if is_given), None):
        raise UsageError(f"{name} has no effect {form}", hint="leave it out")


def run_argument(metavar: str, help_: str) -> Any:
    """Return an argument that names a run's folder."""
    return typer.Argument(metavar=metavar, help=help_, parser=parse_run)


RunArg = Annotated[Path, run_argument("RUN", "The run's folder (created by rollout and loop).")]
ConfigOpt = Annotated[
    list[str] | None,
    typer.Option(
        "-c",
        "--config",
        metavar="FILE",
        help="Settings file, or the name of a shipped one (demo). Repeatable; later files override earlier ones.",
        autocompletion=complete.settings_files,
    ),
]
SetOpt = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--set",
        metavar="KEY=VALUE",
        help="One setting, as section.key=value. Repeatable; overrides files.",
        autocompletion=complete.settings,
    ),
]
JsonOpt = Annotated[
    bool, typer.Option("--json", help="Write JSON Lines to stdout (default of long commands into a pipe).")
]
FieldOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="OURS=THEIRS",
        help="Name of a field in your file, like instruction=Question; a.b is b within a. Repeatable.",
    ),
]
QuietOpt = Annotated[bool, typer.Option("-q", "--quiet", help="Print only ids.")]
DryRunOpt = Annotated[bool, typer.Option("-n", "--dry-run", help="Print the plan and write nothing.")]
TrustOpt = Annotated[
    bool,
    typer.Option("--trust", help="Trust a run that was made elsewhere: execute its settings, now and from now on."),
]
MaxCostOpt = Annotated[
    float | None,
    typer.Option("--max-cost", metavar="COST", help="Exit with 86 once the run's tokens cost this (cost.max_cost)."),
]
MaxCallsOpt = Annotated[
    int | None,
    typer.Option("--max-judge-calls", min=1, help="Exit with 86 after these calls of the run (cost.max_judge_calls)."),
]
MinSuccessOpt = Annotated[
    float | None,
    typer.Option("--min-success", min=0, max=1, help="Exit with 5 if the (last evaluation's) success rate is lower."),
]
# Names of the shared options, in their order on every help page, after the command's own.
_SHARED = ("trust", "max_cost", "max_judge_calls", "config", "set_", "json", "quiet", "dry_run")


@dataclass(frozen=True, slots=True)
class SettingsOptions:
    """The options of a command that reads settings."""

    config: ConfigOpt = None
    set_: SetOpt = None

    @property
    def overrides(self) -> list[str]:
        """The settings that the command line gives, as KEY=VALUE."""
        return [*(self.set_ or ())]

    def load(self) -> Settings:
        """Load the settings of a command that needs no run."""
        from webgym_cli.config.load import load

        return load(self.config or (), self.overrides)


@dataclass(frozen=True, slots=True)
class DataOptions(SettingsOptions):
    """The options of a command that reads settings and prints data."""

    json: JsonOpt = False


@dataclass(frozen=True, slots=True)
class StageOptions(DataOptions):
    """The options of a command that executes a plan."""

    dry_run: DryRunOpt = False
    trust: TrustOpt = False

    def open_output(self) -> Output:
        """Return the output of a long command."""
        return Output.for_events(self.json)


@dataclass(frozen=True, slots=True)
class PaidOptions(StageOptions):
    """The options of a command that asks models which may have a price."""

    max_cost: MaxCostOpt = None
    max_judge_calls: MaxCallsOpt = None

    @property
    def overrides(self) -> list[str]:
        """As of other commands, with the limits."""
        limits = {"cost.max_cost": self.max_cost, "cost.max_judge_calls": self.max_judge_calls}
        return [*(self.set_ or ()), *format_overrides(limits)]


def name_files(hint: str, files: Iterable[str]) -> str:
    """Return a hint that ends in `webgym login`, which reads no run, with the settings files of this command."""
    return hint + when(re.search(r"\bwebgym login[\w@ -]*$", hint), "".join(f" -c {quote(file)}" for file in files))


def spread_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each of a command's parameters that is a dataclass of options by the options of that class.

    The shared options come last, in one order on every help page.
    """
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())
    kinds: dict[str, Any] = {one.name: one.annotation for one in own if is_dataclass(one.annotation)}
    groups = {name: inspect.signature(kind, eval_str=True).parameters for name, kind in kinds.items()}

    @wraps(command)
    def with_options(**given: Any) -> None:
        files = given.get("config") or ()
        grouped = {name: kinds[name](**{one: given.pop(one) for one in group}) for name, group in groups.items()}
        try:
            command(**given, **grouped)
        except WebGymError as error:
            error.hint = name_files(error.hint, files)
            raise

    def place(parameter: inspect.Parameter) -> int:
        return ("", *_SHARED).index(parameter.name if parameter.name in _SHARED else "")

    every = chain.from_iterable(groups[one.name].values() if one.name in groups else [one] for one in own)
    ordered = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in sorted(every, key=place)]
    with_options.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]
    return with_options


IdsArg = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Trajectory ids; - reads them from stdin.")]


def read_ids(ids: list[str] | None) -> list[str] | None:
    """Return the ids; `-` is replaced by those on stdin, plain or as JSON Lines with `id`. None without arguments."""
    if not ids:
        return None
    return list(chain.from_iterable(_read_stdin() if name == "-" else [name] for name in ids))


def _read_stdin() -> Iterator[str]:
    for line in map(str.strip, sys.stdin):
        if line.startswith("{"):
            try:
                yield str(json.loads(line)["id"])
            except (ValueError, RecursionError) as error:
                raise UsageError(f"stdin: neither an id nor JSON: {error}") from None
            except KeyError:
                raise UsageError("stdin: a line of JSON without id", hint="webgym inspect-buffer RUN -q") from None
        elif line:
            yield line
