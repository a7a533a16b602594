"""`webgym setup`: makes the role environments and finds or installs a browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, SetOpt

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings

# Deadline of one command of the set-up.
LIMIT_SECONDS = 7200.0
# How often a sign of life is given.
REPORT_SECONDS = 20.0


class SetupPart(StrEnum):
    """What can be set up."""

    ALL = "all"
    SERVE = "serve"
    TRAIN = "train"
    BROWSER = "browser"


class DeviceFlavour(StrEnum):
    """The values of `venvs.device`."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


RoleOpt = Annotated[list[SetupPart] | None, typer.Option("--role", help="What to set up. Repeatable; default: all.")]
DeviceOpt = Annotated[
    DeviceFlavour | None, typer.Option("--device", help="Flavour, in place of the setting venvs.device.")
]


def setup(
    role: RoleOpt = None,
    device: DeviceOpt = None,
    config: ConfigOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Install what stages run on: vLLM, LLaMA-Factory, Chromium.

    vLLM and LLaMA-Factory get an environment each, below $WEBGYM_HOME. What is there already is left as it is.

    Examples:
      webgym setup
      webgym setup --role train --device cpu
      webgym setup --dry-run

    Exit codes: 4.

    See also: webgym doctor, webgym config show.
    """
    from webgym_cli.cli.output import Output
    from webgym_cli.config.load import load
    from webgym_cli.venvs.browser import execute_browser, plan_browser
    from webgym_cli.venvs.locate import resolve_device
    from webgym_cli.venvs.setup import execute_setup, plan_setup

    settings = load(config or (), set_ or ())
    wanted = _select_parts(role)
    output = Output.for_events(json)
    flavour = resolve_device(device or settings.venvs.device)
    plan = plan_setup(settings, [part for part in wanted if part != SetupPart.BROWSER], flavour)
    browser = plan_browser(_finder(settings)) if SetupPart.BROWSER in wanted else None
    if dry_run:
        for part in (*(role.to_json() for role in plan), *([browser.to_json()] if browser else [])):
            output.data({"event": "plan", "stage": "setup", **part})
        return

    def say(message: str) -> None:
        output.event({"event": "setup", "message": message})

    def run(command: Sequence[str], log: Path) -> int:
        return run_logged(command, log, say)

    if browser:
        execute_browser(browser, say, run, _finder(settings))
    execute_setup(plan, say, run)
    if flavour != resolve_device(settings.venvs.device):
        output.note(f"commands use this flavour only with the setting venvs.device: {flavour}")
    output.next_step("webgym doctor")


def run_logged(command: Sequence[str], log: Path, report: Callable[[str], None]) -> int:
    """Run a command of the set-up to its end, its output in a log; it ends with us. Tells how far it is."""
    from webgym_cli.jobs.signals import run_async

    return run_async(_run(command, log, report))


async def _run(command: Sequence[str], log: Path, report: Callable[[str], None]) -> int:
    import asyncio

    from webgym_cli.jobs.process import Job, last_lines
    from webgym_cli.venvs.locate import own_environ

    loop = asyncio.get_running_loop()
    started = reported = loop.time()
    job = Job.spawn(command, env=own_environ(), log=log)
    try:
        while (code := job.poll()) is None and loop.time() - started < LIMIT_SECONDS:
            await asyncio.sleep(0.1)
            if loop.time() - reported >= REPORT_SECONDS:
                reported = loop.time()
                last_line = [line for line in last_lines(log, 50) if not line.startswith("WARNING")][-1:]
                report(f"  {reported - started:.0f} s: {' '.join(last_line).strip()[:100]}")
    finally:
        await job.stop()
    return 124 if code is None else code


def _select_parts(roles: list[SetupPart] | None) -> list[SetupPart]:
    every = [SetupPart.BROWSER, SetupPart.SERVE, SetupPart.TRAIN]
    return every if not roles or SetupPart.ALL in roles else list(dict.fromkeys(roles))


def _finder(settings: Settings) -> Callable[[], Path]:
    from webgym_cli.environments.browser.executable import find_chromium

    if settings.browser.executable:
        find_chromium(settings.browser)  # a wrong setting is an error to be told, not a reason to install
    return lambda: find_chromium(settings.browser)
