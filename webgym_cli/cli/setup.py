"""`webgym setup`: makes the role environments and finds or installs a browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from webgym_cli.cli.options import ConfigOpt, DryRunOpt, SetOpt

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings

PARTS = ("serve", "train", "browser")
LIMIT_SECONDS = 7200.0
"""Deadline of one command of the set-up."""

RoleOpt = Annotated[
    list[str] | None, typer.Option("--role", metavar="ROLE", help="serve, train or browser. Repeatable; default: all.")
]


def setup(role: RoleOpt = None, config: ConfigOpt = None, set_: SetOpt = None, dry_run: DryRunOpt = False) -> None:
    """Install what the stages run on: vLLM, LLaMA-Factory and a Chromium. Nothing is done twice."""
    from webgym_cli.cli.output import Output
    from webgym_cli.config.load import load
    from webgym_cli.roles.browser import execute_browser, plan_browser
    from webgym_cli.roles.locate import device
    from webgym_cli.roles.setup import execute_setup, plan_setup

    settings = load(config or (), set_ or ())
    wanted = _wanted(role)
    output = Output()
    plan = plan_setup(settings, [name for name in wanted if name != "browser"], device(settings))
    browser = plan_browser(_finder(settings)) if "browser" in wanted else None
    if dry_run:
        for part in (*plan.to_json(), *([browser.to_json()] if browser else [])):
            output.data(part)
        return
    if browser:
        execute_browser(browser, output.note, run_logged, _finder(settings))
    execute_setup(plan, output.note, run_logged)
    output.next_step("webgym doctor")


def run_logged(command: Sequence[str], log: Path) -> int:
    """Run a command of the set-up to its end, its output in a log; it ends with us."""
    from webgym_cli.jobs.signals import run_async

    return run_async(_run(command, log))


async def _run(command: Sequence[str], log: Path) -> int:
    import asyncio
    import os

    from webgym_cli.jobs.process import Job

    misleading = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in misleading}
    job = Job.spawn(command, env=env, log=log)
    try:
        return await asyncio.wait_for(job.wait(), LIMIT_SECONDS)
    except TimeoutError:
        return 124
    finally:
        await job.stop()


def _wanted(roles: list[str] | None) -> list[str]:
    from webgym_cli.errors import UsageError

    for name in roles or ():
        if name not in PARTS:
            raise UsageError(f"--role: there is no {name!r}", hint=f"one of: {', '.join(PARTS)}")
    return list(dict.fromkeys(roles or PARTS))


def _finder(settings: Settings) -> Callable[[], Path]:
    from webgym_cli.environments.browser.find import find_chromium

    if settings.browser.executable:
        find_chromium(settings.browser)  # a wrong setting is an error to be told, not a reason to install
    return lambda: find_chromium(settings.browser)
