"""`webgym login` as people meet it: a real browser, and the fixture mail site in the place of WebArena's."""

import asyncio
import json
import os
import stat
import time

import pytest

from tests.environments.webarena.webarena_mail import PASSWORD, USER, mail_settings
from tests.forked import webgym

SITE = "gitlab"


@pytest.fixture
def login(tmp_path, mail):
    """Run `webgym login` to its end and return its code, the rows on stdout, and stderr."""

    async def call(*arguments, password=PASSWORD, as_json=True):
        given = [f"browser.auth_folder={tmp_path / 'auth'}", "browser.max_idle_wait=0.5", *mail_settings(SITE, mail)]
        settings = [word for one in given for word in ("-s", one)]
        words = ["login", "-c", "webarena", *(["--json"] * as_json), *arguments, *settings]
        done = await asyncio.to_thread(webgym, *words, cwd=tmp_path, code=None, WEBARENA_GITLAB_PASSWORD=password)
        assert password not in done.stdout + done.stderr
        lines = done.stdout.splitlines()
        return done.returncode, [json.loads(line) for line in lines] if as_json else lines, done.stderr

    return call


@pytest.fixture
def state(tmp_path):
    return tmp_path / "auth" / f"{SITE}_state.json"


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
async def test_a_login_is_kept_for_its_owner_alone_and_is_known_to_the_site_until_that_forgets(login, state, mail):
    code, rows, output = await login()
    row = {"site": SITE, "role": "user", "status": "valid", "account": USER, "file": str(state), "detail": ""}
    assert (code, rows, output, mail.logins) == (0, [row], "", 1)
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    cookies = {cookie["name"]: cookie["value"] for cookie in json.loads(state.read_text())["cookies"]}
    assert mail.sessions[cookies["session"]].logged_in
    assert [path.name for path in state.parent.iterdir()] == [state.name]

    code, rows, output = await login("--check")
    assert (code, rows, mail.logins) == (0, [row], 1)

    mail.sessions.clear()
    code, (result,), output = await login("--check", SITE)
    assert (code, result["status"]) == (3, "expired")
    assert result["detail"] == f"{mail.url}/folder/inbox leads to the login page"
    assert output == f"webgym: 1 of 1 logins are of no use\n  next: webgym login {SITE} -c webarena\n"

    assert (await login())[0] == 0
    os.utime(state, (0, time.time() - 13 * 3600))
    code, (result,), _ = await login("--check")
    assert (code, result["status"], result["detail"]) == (3, "expired", "expired (13.0 hours old)")

    state.write_text("{")
    code, (result,), _ = await login("--check")
    assert (code, result["status"]) == (3, "missing")
    assert result["detail"].startswith(f"{state} is no storage state")


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
async def test_a_wrong_password_is_1_and_says_what_the_site_says(login, state):
    code, (row,), output = await login(password="squirrel")
    text = f"{SITE} did not let {USER} in: "
    assert (code, row["status"], state.exists()) == (1, "failed", False)
    assert row["detail"].startswith(text) and row["detail"].endswith("it said: User name or password is wrong.")
    assert output.startswith(f"webgym: 1 of 1 logins failed: {text}")
    assert f"next: check sites.{SITE}.accounts.user.account and the variable WEBARENA_GITLAB_PASSWORD" in output


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
@pytest.mark.parametrize("down", ["gone", "503"])
async def test_a_site_that_is_down_is_1_and_names_its_address(login, state, mail, down):
    if down == "gone":
        await mail.__aexit__()
    else:
        mail.status = 503
    code, (row,), output = await login()
    assert (code, row["status"], state.exists()) == (1, "failed", False)
    address = mail.url.removeprefix("http://")
    reason = {"gone": f"{address} does not answer", "503": f"{mail.url}/login answers with status 503"}[down]
    assert f"{SITE}: {reason}" in output
    assert f"next: start the site, or fix sites.{SITE}.url" in output
    if down == "gone":
        mail._runner = None
        await mail.__aenter__()


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
async def test_a_form_that_looks_otherwise_names_the_setting(login):
    code, _, output = await login("-s", f"sites.{SITE}.submit=button=Enter here")
    assert code == 1
    assert f"does not show sites.{SITE}.submit, 'button=Enter here', but 'User name', 'Password', 'Log in'" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["bank"], "there is no site 'bank'"),
        (["map", "-s", "sites.map.url=http://m.test"], "sites.map.accounts: nobody logs in as user: it has no"),
        (["reddit"], "sites.reddit.url is empty"),
        (["-s", f"sites.{SITE}.accounts.user.password_env_var=NO_SUCH"], "the variable NO_SUCH is not set"),
        (["-s", f"sites.{SITE}.accounts.user.password_env_var="], "set password_env_var"),
        ([SITE, "--role", "boss"], f"sites.{SITE}.accounts: nobody logs in as boss: its roles are user"),
    ],
)
async def test_wrong_usage_is_2_and_says_what(login, arguments, expected):
    code, rows, output = await login(*arguments)
    assert (code, rows) == (2, [])
    assert expected in output and "Traceback" not in output


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
async def test_a_missing_login_is_3(login, state):
    code, (row,), _ = await login("--check")
    assert (code, row["status"], row["detail"]) == (3, "missing", f"{state} is missing")
    code, lines, output = await login("--check", as_json=False)
    assert (code, lines) == (3, [f"{SITE}\tuser\tmissing\t{USER}\t{state} is missing"])
    assert output.startswith(f"{SITE} user: missing\nwebgym: 1 of 1 logins are of no use")
