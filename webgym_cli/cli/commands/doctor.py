"""`webgym doctor`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from webgym_cli.cli.options import DataOptions
from webgym_cli.cli.output import Output

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings
    from webgym_cli.venvs.doctor import DoctorCheck


def doctor(
    options: DataOptions,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Check the GPUs instead, with a round of serving and training (two minutes).")
    ] = False,
) -> None:
    """Check the installation and the sites of the settings.

    Shows version, path and fix of each part, and tries address, reset and login of each site. Exits with 1 if something
    is missing, with 2 if train.algorithm can't train with the settings, and --gpu with 2 if there is no GPU.

    Examples:
      webgym doctor
      webgym doctor --gpu -c webgym
      webgym doctor -c site.yaml
      webgym doctor --json | jq -r 'select(.status=="missing").fix'

    See also: webgym setup, webgym login.
    """
    from webgym_cli.cli.gpu_checks import check_gpus
    from webgym_cli.environments.browser.executable import chromium_version, find_chromium
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.train.registry import check_algorithm
    from webgym_cli.venvs.doctor import diagnose

    settings = options.load()
    if gpu:
        parts = tuple(check_gpus(settings))
    else:
        parts = diagnose(settings, lambda: find_chromium(settings.browser), chromium_version)
        parts = (*parts, *run_async(_list_sites(settings)))
    output = Output(as_json=options.json)
    if options.json:
        for part in parts:
            output.data(asdict(part))
    else:
        rows = ((part.name, part.status, part.version, part.path) for part in parts)
        output.table("", ("part", "status", "version", "path"), rows)
        for part in parts:
            if part.fix:
                output.note(f"{part.name}: {part.fix}")
    check_algorithm(settings)
    if any(part.status == "missing" for part in parts):
        raise typer.Exit(1)


async def _list_sites(settings: Settings) -> list[DoctorCheck]:
    from webgym_cli.environments.sites.doctor import diagnose_sites

    return [check async for check in diagnose_sites(settings)]
