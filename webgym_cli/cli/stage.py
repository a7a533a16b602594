"""Common set-up of the commands on a run: settings, lock, log folder, state."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from webgym_cli.cli.options import PaidOptions, SettingsOptions, StageOptions, format_overrides
from webgym_cli.cli.output import Output
from webgym_cli.cli.streams import explain_os_error
from webgym_cli.config.load import list_unused_variables, load_with_sources, trust_run
from webgym_cli.config.model import Settings
from webgym_cli.config.secrets import check_secrets
from webgym_cli.errors import WebGymError
from webgym_cli.records.events import Event, EventSink
from webgym_cli.records.series import ORACLE, VLLM
from webgym_cli.store.find_run import require_readable, require_run
from webgym_cli.store.run import RunDir, create_or_open, new_attempt, now, refuse_changes, saved_settings
from webgym_cli.util.json_values import encode_json
from webgym_cli.util.proxies import check_network_variables
from webgym_cli.util.secrets import redact

if TYPE_CHECKING:
    from webgym_cli.loop.context import StageContext

Result = TypeVar("Result")

# The commands that plan their trainings after their start.
_LOOPS = ("loop", "curriculum")
# The commands that start a policy server if `rollout.policy` requires one.
_SERVING = ("rollout", "gateway", "eval", "loop", "curriculum")


@dataclass(frozen=True, slots=True)
class Stage:
    """A running command that holds the lock of its run."""

    run: RunDir
    settings: Settings
    logs: Path
    """The log folder of this attempt."""
    sink: EventSink
    """Shows events and keeps them in `webgym.log`."""

    def execute(self, work: Callable[[StageContext], Awaitable[Result]]) -> Result:
        """Run `work` on a context of the run and return its result."""
        from webgym_cli.jobs.signals import run_async
        from webgym_cli.loop.context import StageContext

        async def with_context() -> Result:
            async with StageContext(self.run, self.settings, self.logs, self.sink) as context:
                return await work(context)

        return run_async(with_context())


def resolve(
    run: Path,
    options: SettingsOptions,
    values: Mapping[str, Any] | None = None,
    *,
    required: bool = False,
    executes: bool = True,
) -> tuple[RunDir, Settings]:
    """Return a command's run and settings, checked against the run's saved settings; writes nothing into the run.

    `values`: settings from other options by dotted key, None if not given. `required`: the run must exist. `executes`:
    see `load_with_sources`.
    """
    directory = RunDir(run)
    require_readable(directory)
    if required:
        require_run(directory, run)
    overrides = [*options.overrides, *format_overrides(values or {})]
    if isinstance(options, StageOptions) and options.trust:
        trust(directory)
    settings, sources = load_with_sources(
        options.config or (), overrides, run_config=directory.config, executes=executes
    )
    refuse_changes(directory, settings, sources)
    if isinstance(options, PaidOptions):
        settings.cost.require_prices()
    if executes:
        from webgym_cli.train.registry import check_algorithm

        check_algorithm(settings)
    return directory, settings


def trust(run: RunDir) -> None:
    """Trust a run, and those within it, as if they had been made here."""
    for one in (run, run.orm, run.survey):
        trust_run(one.config)


def check_command(command: str, run: RunDir, settings: Settings, options: dict[str, Any], output: Output) -> None:
    """Note the settings without effect. Raise `SettingsError` for a mistyped base model before it is saved."""
    from webgym_cli.serve.weights import require_model

    if command in _SERVING:
        note_ineffective(settings, output)

    policy = options.get("policy") or settings.rollout.policy
    if command in _SERVING and command != "eval" and options.get("split") != "test" and policy not in (VLLM, ORACLE):
        note_untrainable(settings, output)
    model = settings.policy_config.base_model
    if run.exists and saved_settings(run).policy_config.base_model == model:
        return
    served = command in _SERVING and policy == VLLM and options.get("phase") != "update"
    if policy in (VLLM, ORACLE):
        require_model(model, served=served)


def note_ineffective(settings: Settings, output: Output) -> None:
    """Note the settings that have no effect without another one."""
    from webgym_cli.config.partners import list_ineffective

    for line in list_ineffective(settings):
        output.note(line)


def note_untrainable(settings: Settings, output: Output) -> None:
    """Note before the first episode that `prepare` will refuse what another server samples with these settings."""
    from webgym_cli.prepare.data import PREPARED_DATA
    from webgym_cli.records.sampling import Sampling
    from webgym_cli.train.registry import find_backend

    given, name = settings.policy_config, settings.train.algorithm
    sampling = Sampling(temperature=given.temperature, top_k=given.top_k, top_p=given.top_p, min_p=given.min_p)
    if PREPARED_DATA.find(find_backend(name).data).needs_logprobs and not sampling.untouched:
        output.note(
            f"train.algorithm={name} can't train on these episodes: log-probabilities of a server that is not webgym's"
            " are taken for those before temperature, top_k, top_p and min_p (-s policy_config.temperature=1"
            " -s policy_config.top_k=-1 -s policy_config.top_p=1 -s policy_config.min_p=0)"
        )


def open_training(run: RunDir, settings: Settings, options: StageOptions) -> Output:
    """Return the output of a command on training data, once it says if `train.algorithm` is not what trains now."""
    from webgym_cli.store.checkpoints import algorithm

    output, wanted, actual = options.open_output(), settings.train.algorithm, algorithm(run, settings)
    if run.orm_of is None:
        note_ineffective(settings, output)
    if actual != wanted:
        output.note(
            f"loop.demonstration_algorithm={actual} trains this iteration, not train.algorithm={wanted}: it is one of"
            " loop.demonstration_iterations (for the policy's own episodes: -s loop.demonstration_iterations=0)"
        )
    return output


@contextmanager
def stage(
    command: str, run: RunDir, settings: Settings, output: Output, options: dict[str, Any] | None = None
) -> Iterator[Stage]:
    """Lock the run while the block runs; `webgym resume` can continue the command unless the block succeeds."""
    # Here, because a plan, or a look at a run, needs none of these.
    from webgym_cli.store.status import lock_run, note_command
    from webgym_cli.train.plan import refuse_torchrun_variables

    if run.exists:
        for line in list_unused_variables(run.config):
            output.note(line)
    check_secrets(settings)
    check_network_variables()
    if command in _LOOPS:
        refuse_torchrun_variables(os.environ)
    check_command(command, run, settings, options or {}, output)
    note = note_command(run, command, options or {})
    with lock_run(run, f"{command} {run.root}"), ExitStack() as noted:
        if is_new := not run.exists:  # it may be killed while it is made
            noted.enter_context(note)
        create_or_open(run, settings)
        logs = new_attempt(run)
        if not is_new:  # a failure so far leaves the note of an earlier command
            noted.enter_context(note)
        with output.progress() as board, (logs / "webgym.log").open("ab", buffering=0) as log:

            def sink(event: Event) -> None:
                if event.get("transient"):
                    board(event)
                    return
                with suppress(OSError):  # the store reports a full disk and loses nothing
                    line = redact(encode_json({"at": now(), **event}))
                    log.write(line.encode(errors="replace") + b"\n")
                board(event)

            try:
                yield Stage(run, settings, logs, sink)
            except OSError as error:
                if error.errno is None:  # a bug of ours
                    raise
                raise WebGymError(
                    f"{explain_os_error(error)}; what was finished is stored", hint=f"webgym resume {run.root}"
                ) from error
