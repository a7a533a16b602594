"""`webgym login`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from webgym_cli.cli.options import ConfigOpt, JsonOpt, SetOpt
from webgym_cli.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webgym_cli.environments.webarena.login_command import LoginStatus

SitesArg = Annotated[
    list[str] | None,
    typer.Argument(metavar="SITE...", help="shopping, shopping_admin, reddit, gitlab; without: all with an address."),
]
CheckOpt = Annotated[bool, typer.Option("--check", help="Log in nowhere; say whether the sites know the logins.")]


def login(
    sites: SitesArg = None,
    check: CheckOpt = False,
    config: ConfigOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = False,
) -> None:
    """Log in to WebArena's sites and keep the logins.

    Accounts and login forms are settings (webarena), passwords stand in environment variables that they name. The
    logins are kept in webarena.auth_folder as Playwright's storage states, for their owner's eyes only; rollouts begin
    with them. With --check each is shown to its site: valid, expired or missing, and 3 if one is not valid.

    Examples:
      webgym login -s webarena.shopping.url=http://localhost:7770
      webgym login gitlab reddit -c webarena.yaml
      webgym login --check --json -c webarena.yaml

    Exit codes: 3.

    See also: webgym rollout, webgym tasks convert, webgym config show.
    """
    from webgym_cli.config.load import load
    from webgym_cli.environments.webarena.login_command import select_sites, visit_sites
    from webgym_cli.jobs.signals import run_async

    settings, output = load(config or (), set_ or ()), Output(as_json=json)
    wanted = select_sites(settings, sites or ())
    entries = run_async(visit_sites(settings, wanted, lambda entry: _say(output, entry), check=check))
    if not json:
        rows = ((entry.site, entry.status, entry.account, entry.detail or entry.file) for entry in entries)
        output.table("", ("site", "login", "account", ""), rows)
    _require_all(entries, check=check)


def _say(output: Output, entry: LoginStatus) -> None:
    if output.as_json:
        output.data(entry.model_dump(mode="json"))
        output.flush()
    else:
        output.note(f"{entry.site}: {entry.status}")


def _require_all(entries: Sequence[LoginStatus], *, check: bool) -> None:
    """Raise the error of what is not as it should be."""
    from webgym_cli.errors import MissingStageError, WebGymError

    bad = [entry for entry in entries if entry.status != "valid"]
    if not bad:
        return
    names = " ".join(entry.site for entry in bad)
    if check:
        raise MissingStageError(f"{len(bad)} of {len(entries)} logins are of no use", hint=f"webgym login {names}")
    raise WebGymError(f"{len(bad)} of {len(entries)} sites were not logged in to: {bad[0].detail}", hint=bad[0].hint)
