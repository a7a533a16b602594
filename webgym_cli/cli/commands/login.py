"""`webgym login`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from webgym_cli.cli.options import DataOptions
from webgym_cli.cli.output import Output
from webgym_cli.errors import MissingStageError, WebGymError

if TYPE_CHECKING:
    from webgym_cli.environments.sites.login_command import LoginStatus

SitesArg = Annotated[
    list[str] | None,
    typer.Argument(metavar="SITE...", help="Names in the table sites of the settings (default: all with an address)."),
]
RoleOpt = Annotated[str, typer.Option("--role", metavar="ROLE", help="Log in as this role alone (default: all roles).")]
CheckOpt = Annotated[bool, typer.Option("--check", help="Only check whether the sites accept the stored logins.")]


def login(options: DataOptions, sites: SitesArg = None, role: RoleOpt = "", check: CheckOpt = False) -> None:
    """Log in to sites and store the logins.

    Sites and accounts are settings (sites); passwords are read from the environment variables that they name. --check
    tests each stored login on its site, and exits with 3 if one is not valid.

    Examples:
      webgym login -c site.yaml
      webgym login desk --role agent -c site.yaml
      webgym login --check --json -c webarena -s sites.shopping.url=http://localhost:7770

    Exit codes: 3.

    See also: webgym doctor, webgym rollout, webgym tasks convert, webgym config show.
    """
    from webgym_cli.environments.sites.login_command import select_logins, visit_sites
    from webgym_cli.jobs.signals import run_async

    settings, output = options.load(), Output(as_json=options.json)
    wanted = select_logins(settings, sites or (), role)
    entries = run_async(visit_sites(settings, wanted, lambda entry: _show_status(output, entry), check=check))
    if not options.json:
        rows = ((entry.site, entry.role, entry.status, entry.account, entry.detail or entry.file) for entry in entries)
        output.table("", ("site", "role", "login", "account", ""), rows)
    bad = [entry for entry in entries if entry.status != "valid"]
    if bad and check:
        names = " ".join(dict.fromkeys(entry.site for entry in bad))
        hint = bad[0].hint if len(bad) == 1 else f"webgym login {names}"
        raise MissingStageError(f"{len(bad)} of {len(entries)} logins are of no use", hint=hint)
    if bad:
        raise WebGymError(f"{len(bad)} of {len(entries)} logins failed: {bad[0].detail}", hint=bad[0].hint)


def _show_status(output: Output, entry: LoginStatus) -> None:
    if output.as_json:
        output.data(entry.model_dump(mode="json"))
        output.flush()
    else:
        output.note(f"{entry.site} {entry.role}: {entry.status}")
