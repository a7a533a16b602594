"""`webgym setup`: makes the role environments and finds or installs a browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from webgym_cli.cli.options import StageOptions
from webgym_cli.cli.output import Output
from webgym_cli.util.optional import known_or

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings
    from webgym_cli.venvs.setup import RoleSetup

# Timeout of one set-up command.
LIMIT_SECONDS = 7200.0
# Interval of progress messages.
REPORT_SECONDS = 20.0


class SetupPart(StrEnum):
    """Parts that can be set up."""

    ALL = "all"
    SERVE = "serve"
    TRAIN = "train"
    BROWSER = "browser"


RoleOpt = Annotated[list[SetupPart] | None, typer.Option("--role", help="Part to set up. Repeatable; default: all.")]
PackagesOpt = Annotated[
    bool, typer.Option("--system-packages", help="Install a system package for the browser as root without a question.")
]
DeviceOpt = Annotated[
    Literal["auto", "cpu", "cuda"] | None,
    typer.Option("--device", help="Hardware of the environments (default: the setting venvs.device)."),
]


def setup(
    options: StageOptions, role: RoleOpt = None, device: DeviceOpt = None, system_packages: PackagesOpt = False
) -> None:
    """Install vLLM, LLaMA-Factory and Chromium.

    Installs into $WEBGYM_HOME; installed parts are left unchanged. Where Playwright's Chromium can't be downloaded, a
    system package is installed as root, after a question or with --system-packages.

    Examples:
      webgym setup
      webgym setup --role train --device cpu
      webgym setup --dry-run

    Exit codes: 4.

    See also: webgym doctor, webgym config show.
    """
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.train.deepspeed_ops import build_ops
    from webgym_cli.venvs.browser import execute_browser, plan_browser
    from webgym_cli.venvs.locate import resolve_device
    from webgym_cli.venvs.setup import execute_setup, plan_setup

    settings = options.load()
    parts: Sequence[str] = role or ["all"]
    wanted = ("browser", "serve", "train") if "all" in parts else tuple(dict.fromkeys(parts))
    output, usual = options.open_output(), resolve_device(settings.venvs.device)
    flavour = resolve_device(device or usual)
    plan = plan_setup(settings, [part for part in wanted if part != "browser"], flavour)
    browser = plan_browser(_finder(settings)) if "browser" in wanted else None
    if options.dry_run:
        for facts in [one.to_json() for one in plan] + [one.to_json() for one in [browser] if one]:
            output.data({"event": "plan", "stage": "setup", **facts})
        return

    _note_unlocked(output, plan)

    def say(message: str) -> None:
        output.event({"event": "setup", "message": message})

    def run(command: Sequence[str], log: Path) -> int:
        return run_async(run_logged(command, log, say))

    if browser:
        execute_browser(browser, say, run, _finder(settings), partial(_consent, output, system_packages))
    execute_setup(plan, say, run)
    if "train" in wanted and flavour == usual:
        build_ops(settings, flavour, say, run)
    if "serve" in wanted:
        _note_kernels(output, settings.with_changes(venvs={"device": flavour}))
    if flavour != usual:
        output.note(f"commands use this flavour only with the setting venvs.device: {flavour}")
    output.next_step("webgym doctor")


def _note_unlocked(output: Output, plan: Sequence[RoleSetup]) -> None:
    """Name the roles that are made without a lock file: there is none for this Python or platform."""
    import platform

    files = [one.environment.requirements for one in plan if one.state == "make"]
    if names := ", ".join(file.name for file in files if file.suffix != ".lock"):
        here = f"{platform.system()} {platform.machine()} with Python {platform.python_version()}"
        output.note(f"no lock file for {here}: {names} pins the main packages, the others are the newest, unhashed")


def _note_kernels(output: Output, settings: Settings) -> None:
    from webgym_cli.venvs.doctor import check_kernels

    if (kernels := check_kernels(settings)) and kernels.fix:
        output.note(f"{kernels.name}: {kernels.version}. {kernels.fix}")


def _consent(output: Output, is_given: bool, commands: Sequence[Sequence[str]]) -> bool:
    """Whether commands may run as root: by the option, or by an answer on a terminal."""
    lines = "; ".join(" ".join(command) for command in commands)
    return is_given or output.confirm(f"no Chromium could be downloaded. Run as root: {lines}?")


async def run_logged(command: Sequence[str], log: Path, report: Callable[[str], None]) -> int:
    """Run a set-up command with its output in a log and report progress; it is terminated with this process."""
    import asyncio

    from webgym_cli.jobs.process import Job, last_lines
    from webgym_cli.util.files import file_size
    from webgym_cli.venvs.installer import describe_progress
    from webgym_cli.venvs.locate import own_environ

    loop = asyncio.get_running_loop()
    started = reported = loop.time()
    before = file_size(log)  # the output of earlier steps: a check of two minutes went on "installing"
    # The check leaves the bytecode of what it imports: where the user forbids it, each start of vLLM would compile it.
    env = {name: value for name, value in own_environ().items() if name != "PYTHONDONTWRITEBYTECODE"}
    job = Job.spawn(command, env=env, log=log)
    try:
        while (code := job.poll()) is None and loop.time() - started < LIMIT_SECONDS:
            await asyncio.sleep(0.1)
            if loop.time() - reported >= REPORT_SECONDS:
                reported = loop.time()
                lines = [line for line in last_lines(log, 500, file_size(log) - before) if "WARNING" not in line]
                progress = describe_progress("\n".join(lines)) or " ".join(lines[-1:]).strip()
                report(f"  {reported - started:.0f} s: {progress[:150]}")
    finally:
        await job.stop()
    return known_or(code, 124)


def _finder(settings: Settings) -> Callable[[], Path]:
    from webgym_cli.environments.browser.executable import find_chromium

    if settings.browser.executable:
        find_chromium(settings.browser)  # a wrong setting is an error to report, not a reason to install
    return lambda: find_chromium(settings.browser)
