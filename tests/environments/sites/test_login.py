"""Logins that a rollout takes care of itself, in a real browser; the fixture mail site stands in for WebArena's."""

import asyncio
import os
import ssl
import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from tests.environments.lab import write_certificate
from tests.environments.sites.desk import Desk
from tests.environments.webarena.webarena_mail import PASSWORD, MailServer, mail_settings
from webgym_cli.config.load import load
from webgym_cli.environments.browser.address_rules import AddressRules
from webgym_cli.environments.browser.egress_proxy import EgressProxy, _relay
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.sites.accounts import LoginStore
from webgym_cli.environments.sites.doctor import diagnose_sites
from webgym_cli.environments.sites.site_scheduler import log_in_to_sites
from webgym_cli.environments.sites.site_setup import SETUPS, SiteSetup
from webgym_cli.environments.web.environment import WebPool
from webgym_cli.errors import BoundaryError, MissingStageError, SettingsError, UsageError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.tasks.format import read_task
from webgym_cli.util.local_server import LocalServer

pytestmark = pytest.mark.browser
LAB = WebArenaSite.GITLAB


def task(*sites):
    return Task(
        id="t", environment="webarena", extra={"sites": sites, "storage_state": f"{'.'.join(sites)}_state.json"}
    )


@pytest.fixture(scope="module")
async def browsers(chromium):
    """One browser for all of the tests here."""
    async with EgressProxy(AddressRules.of(["127.0.0.1"])) as gate, BrowserPool(load().browser, gate.address) as pool:
        yield pool


@pytest.fixture
def settings(tmp_path, mail, monkeypatch):
    monkeypatch.setenv("WEBARENA_GITLAB_PASSWORD", PASSWORD)
    given = [f"browser.auth_folder={tmp_path / 'auth'}", "browser.max_idle_wait=0.5", *mail_settings(LAB, mail)]
    return lambda *more: load(["webarena"], [*given, *more])


@pytest.fixture
def states(settings):
    return LoginStore.of(settings())


async def test_a_rollout_logs_in_at_its_start_where_that_is_needed(settings, mail, states):
    assert await log_in_to_sites(settings(), [task(LAB)]) == (LAB,)
    assert await log_in_to_sites(settings(), [task(LAB), Task(id="m", environment="miniwob")]) == ()
    assert mail.logins == 1
    mail.sessions.clear()
    assert await log_in_to_sites(settings(), [task(LAB)]) == (LAB,)
    assert (mail.logins, states.fault(LAB)) == (2, "")


async def test_a_rollout_that_may_not_log_in_names_the_command(settings, mail, states):
    manual = settings("sites.gitlab.login=manual")
    with pytest.raises(MissingStageError, match="the login of gitlab is of no use: missing"):
        await log_in_to_sites(manual, [task(LAB)])
    await log_in_to_sites(settings(), [task(LAB)])
    assert await log_in_to_sites(manual, [task(LAB)]) == ()
    mail.sessions.clear()
    with pytest.raises(MissingStageError, match="/folder/inbox leads to the login page") as refused:
        await log_in_to_sites(manual, [task(LAB)])
    assert refused.value.hint == "webgym login gitlab"


async def test_a_turn_sees_to_a_login_that_an_episode_ended(settings, mail, states, browsers):
    await log_in_to_sites(settings(), [task(LAB)])
    desk = Desk(settings(), lambda: browsers)
    async with desk.reserve([LAB]):
        assert desk.storage_state(task(LAB)) == states.path((LAB,))
    assert mail.logins == 1
    for state in mail.sessions.values():
        state.logged_in = False  # what an agent's click on "Log out" does
    async with desk.reserve([LAB]):
        assert mail.logins == 2
    os.utime(states.path((LAB,)), (0, time.time() - 13 * 3600))
    async with desk.reserve([LAB]):
        assert (mail.logins, states.fault(LAB)) == (3, "")
    manual = Desk(settings("sites.gitlab.login=manual"), lambda: browsers)
    mail.sessions.clear()
    await manual.refuse(MissingStageError, "the login of gitlab is of no use", LAB)


async def test_a_reset_that_forgets_the_login_is_followed_by_another(settings, mail, browsers):
    reset = settings("sites.gitlab.isolation=reset", f"sites.gitlab.reset={mail.url}/reset")
    await log_in_to_sites(reset, [task(LAB)])
    desk = Desk(reset, lambda: browsers)
    for done in (1, 2):
        async with desk.reserve([LAB]):
            assert (mail.resets, mail.logins) == (done, done + 1)


async def test_episodes_that_share_a_site_have_a_session_each(settings, mail, browsers, monkeypatch):
    """With one for all an agent that logged out ended it for the others, whose checks gave them 0."""

    async def start(stack):
        start = await stack.enter_async_context(desk.reserve([LAB]))
        return next(cookie["value"] for cookie in start.storage_state["cookies"])

    shared = settings("sites.gitlab.isolation=parallel")
    await log_in_to_sites(shared, [task(LAB)])
    desk = Desk(shared, lambda: browsers)
    async with AsyncExitStack() as one, AsyncExitStack() as another:
        own, others = await start(one), await start(another)
        assert (own != others, mail.logins) == (True, 2)
        mail.sessions[own].logged_in = False
    async with AsyncExitStack() as one, AsyncExitStack() as another:
        newest = {await start(one), await start(another)} - {others}
        assert (len(newest), mail.logins) == (1, 3), "the one that is still valid, and a new one"
        monkeypatch.setenv("WEBARENA_GITLAB_PASSWORD", "wrong")  # as a site that limits the logins of a minute
        async with AsyncExitStack() as third:
            assert await start(third) in newest


async def test_a_login_that_fails_is_the_environments_error(settings, mail, browsers, monkeypatch):
    await log_in_to_sites(settings(), [task(LAB)])
    mail.sessions.clear()
    monkeypatch.setenv("WEBARENA_GITLAB_PASSWORD", "squirrel")
    desk = Desk(settings(), lambda: browsers)
    await desk.refuse(BoundaryError, r"gitlab did not let .* in: .*: User name or password is wrong", LAB)
    mail.status = 503
    await desk.refuse(BoundaryError, r"/folder/inbox .*503", LAB)


async def test_two_sites_of_one_host_are_refused_before_the_first_episode(settings, mail, monkeypatch):
    monkeypatch.setenv("WEBARENA_REDDIT_PASSWORD", PASSWORD)
    async with MailServer() as other:
        both = settings(*mail_settings(WebArenaSite.REDDIT, other))
        with pytest.raises(UsageError, match=r"reddit .*gitlab .*'session'"):
            await log_in_to_sites(both, [task(WebArenaSite.REDDIT, LAB)])
    async with MailServer(cookie="forum") as other:
        apart = settings(*mail_settings(WebArenaSite.REDDIT, other))
        assert await log_in_to_sites(apart, [task(WebArenaSite.REDDIT, LAB)]) == (WebArenaSite.REDDIT,)


async def test_a_form_is_found_by_names_buttons_and_selectors(settings, mail):
    """As most of WebArena's are; the proof is then that no page asks for a password."""
    form = ("account_field=name=user", "password_field=#password", "submit=button=Log in", "proof=", "login_page=")
    known = settings(*(f"sites.gitlab.{one}" for one in form))
    assert await log_in_to_sites(known, [task(LAB)]) == (LAB,)
    mail.sessions.clear()
    assert await log_in_to_sites(known, [task(LAB)]) == (LAB,)
    assert mail.logins == 2


def desk_of_an_agent(settings, mail, monkeypatch, *more):
    """Return the settings of the mail site under another name, and a task of its role `agent`."""
    monkeypatch.setenv("DESK", PASSWORD)
    desk = [
        one.replace("gitlab", "desk").replace("accounts.user", "accounts.agent") for one in mail_settings(LAB, mail)
    ]
    known = settings(*desk, "sites.desk.accounts.agent.password_env_var=DESK", *more)
    task = {"id": "t", "instruction": "Read.", "site": "desk", "role": "agent", "start_url": "folder/inbox"}
    return known, read_task(task)


async def test_an_episode_that_is_led_to_the_login_page_is_a_failure_and_the_next_one_logs_in(
    settings, mail, monkeypatch
):
    """A session that ends between the check of a login and the first page would be a reward of 0."""
    known, agent = desk_of_an_agent(settings, mail, monkeypatch, "sites.desk.isolation=parallel")
    await log_in_to_sites(known, [agent])
    endings = [mail.sessions.clear]

    def end_the_session():
        if endings:
            endings.pop()()

    monkeypatch.setitem(SETUPS.registered, "desk", SiteSetup.of(end_the_session, "desk", timeout=None))
    async with WebPool(known, InteractionMode.SET_OF_MARKS) as pool:
        environment = pool.new()
        with pytest.raises(BoundaryError, match="leads to the login page") as led:
            await environment.reset(agent, 1)
        assert (led.value.kind, led.value.hint) == (FailureKind.ENVIRONMENT_ERROR, "webgym login desk --role agent")
        _, view = await environment.reset(agent, 1)
        assert (view.url, mail.logins) == (f"{mail.url}/folder/inbox", 2)
        await environment.reset(agent.model_copy(update={"start_url": "login"}), 1)  # it asks for that page
        await environment.close()


async def test_a_task_on_the_open_web_starts_on_its_site_as_its_role(settings, mail, monkeypatch):
    """A loopback address is reached without another setting, and the start page needs the login."""
    known, agent = desk_of_an_agent(settings, mail, monkeypatch)
    assert agent.environment == "web"
    assert await log_in_to_sites(known, [agent]) == ("desk@agent",)
    done = []

    def tenant():
        done.append("set up")
        yield
        done.append("removed")

    monkeypatch.setitem(SETUPS.registered, "desk", SiteSetup.of(tenant, "desk", timeout=None))
    async with WebPool(known, InteractionMode.SET_OF_MARKS) as pool:
        for task_, seen in ((agent, "/folder/inbox"), (agent.model_copy(update={"role": ""}), "/login")):
            environment = pool.new()
            try:
                _, view = await environment.reset(task_, 1)
                assert view.url == f"{mail.url}{seen}"
                assert any(lock.locked() for lock in pool.desk._turns.values()), "its site is its own until it ends"
                assert done == ["set up"]
            finally:
                await environment.close()
            assert [done.pop(0) for _ in range(2)] == ["set up", "removed"]
        assert not any(lock.locked() for lock in pool.desk._turns.values())


async def test_the_doctor_tries_address_reset_and_logins(settings, mail, monkeypatch):
    monkeypatch.setenv("WEBARENA_REDDIT_PASSWORD", "wrong")
    known = settings(
        *mail_settings(WebArenaSite.REDDIT, mail),
        *("sites.gitlab.isolation=tenant", """sites.gitlab.reset=echo '{"start_url": "/t/{episode}/"}'"""),
        *("sites.down.url=http://127.0.0.1:1", "sites.gitlab.accounts.boss.account=a"),
        "sites.gitlab.accounts.boss.password_env_var=NO_SUCH",
    )
    checks = {check.name: check async for check in diagnose_sites(known)}
    assert {name: check.status for name, check in checks.items()} == {
        **{"site reddit": "ok", "login reddit user": "missing", "site down": "missing"},
        **{"site gitlab": "ok", "reset gitlab": "ok", "login gitlab user": "ok", "login gitlab boss": "missing"},
    }
    assert checks["reset gitlab"].version == "answers with start_url"
    assert "did not let" in checks["login reddit user"].fix
    assert "sites.down.url" in checks["site down"].fix
    assert "NO_SUCH is not set" in checks["login gitlab boss"].fix


@asynccontextmanager
async def serve_desk(answer, monkeypatch):
    """Serve a site that this function answers for; yield its address and its settings."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    monkeypatch.setenv("DESK", "p")
    async with LocalServer(app, 0) as server:
        fields = ("account_field=name=name", "accounts.user.account=amy", "accounts.user.password_env_var=DESK")
        desk = (*fields, f"url=http://{server.address}", "proof=text=Inside")
        yield server.address, [f"sites.desk.{one}" for one in desk]


async def test_a_site_behind_http_authentication_asks_for_name_and_password_on_two_pages_or_a_password_alone(
    settings, monkeypatch
):
    async def answer(request):
        if request.headers.get("Authorization") != "Basic Z2F0ZTprZXk=":
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="gate"'})
        form = await request.post()
        if form.get("password") == "p":
            redirect = web.HTTPFound("/")
            redirect.set_cookie("sid", "1")
            raise redirect
        field = "name=password type=password" if form or request.path == "/alone" else "name=name"
        page = "<p>Inside" if "sid" in request.cookies else f"<form method=post><input {field}></form>"
        return web.Response(text=page, content_type="text/html")

    monkeypatch.setenv("GATE", "gate:key")
    async with serve_desk(answer, monkeypatch) as (address, desk):
        with pytest.raises(BoundaryError, match="status 401") as failure:
            await log_in_to_sites(settings(*desk), [task("desk")])
        assert "browser.http_credentials" in str(failure.value.hint)
        gate = f'browser.http_credentials={{"{address}": "GATE"}}'
        assert await log_in_to_sites(settings(*desk, gate), [task("desk")]) == ("desk",)
        alone = settings(*desk, gate, "sites.desk.account_field=", "sites.desk.login_page=/alone")
        LoginStore.of(alone).path(("desk",)).unlink()
        assert await log_in_to_sites(alone, [task("desk")]) == ("desk",)


async def test_a_form_without_labels_is_told_by_its_first_names_and_by_nothing_that_was_typed(settings, monkeypatch):
    more = "<input placeholder=Code value=12>" + "".join(f"<input name=n{number} value=x>" for number in range(7))

    async def answer(_):
        form = f"<form><input name=name><input name=password type=password>{more}</form>"
        return web.Response(text=form, content_type="text/html")

    async with serve_desk(answer, monkeypatch) as (_, desk):
        with pytest.raises(BoundaryError, match="'button=Go', but") as failure:
            await log_in_to_sites(settings(*desk, "sites.desk.submit=button=Go"), [task("desk")])
    names = ("name", "password", "Code", "n0", "n1", "n2", "n3", "n4")
    assert str(failure.value).endswith(f"but {', '.join(map(repr, names))}, ...")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_sign_on_on_another_private_host_is_named_with_what_allows_it(settings, monkeypatch, scheme):
    async def answer(request):
        raise web.HTTPFound(f"{scheme}://localhost:{request.url.port}/sign-on")

    async with serve_desk(answer, monkeypatch) as (_, desk):
        with pytest.raises(BoundaryError, match="localhost is a private address") as failure:
            await log_in_to_sites(settings(*desk), [task("desk")])
    assert """browser.private_hosts=["localhost"]""" in str(failure.value.hint)


async def test_a_sign_on_elsewhere_that_asks_for_a_name_is_no_login_and_a_second_factor_is_shown(settings, monkeypatch):
    async def answer(request):
        if request.path == "/":
            raise web.HTTPFound(f"http://localhost:{request.url.port}/sign-on")
        given = await request.post()
        field = "<input name=name>"
        if "password" in given:
            field = "<label>Code <input name=code></label><button>Verify</button>"
        elif given:
            field = "<input name=password type=password>"
        return web.Response(text=f"<form method=post>{field}</form>", content_type="text/html")

    async with serve_desk(answer, monkeypatch) as (address, desk):
        known = settings(*desk, "sites.desk.proof=", 'browser.private_hosts=["localhost"]')
        with pytest.raises(BoundaryError, match="did not let amy in") as failure:
            await log_in_to_sites(known, [task("desk")])
    sign_on = f"http://localhost:{address.rpartition(':')[2]}/sign-on"
    assert f"{sign_on}, which asks for a login" in str(failure.value)
    assert f"{sign_on} showed 'Code', 'Verify'" in str(failure.value)


async def test_a_login_is_not_explained_by_the_refusal_of_what_a_page_shows(settings, monkeypatch):
    closed = unused_port()

    async def answer(request):
        if request.path == "/me":
            raise web.HTTPFound(f"https://127.0.0.1:{closed}/")
        form = "<img src=http://10.0.0.5/><form><input name=name><input name=password type=password><button>"
        return web.Response(text="Hello" if request.query else form, content_type="text/html")

    async with serve_desk(answer, monkeypatch) as (_, desk):
        with pytest.raises(BoundaryError, match=f"127.0.0.1:{closed} does not answer") as failure:
            await log_in_to_sites(settings(*desk, "sites.desk.proof_page=/me"), [task("desk")])
    assert failure.value.hint == "start the site, or fix sites.desk.url"


async def test_a_page_that_logs_in_without_navigation_is_not_waited_for_until_the_deadline(settings, monkeypatch):
    """The form hides before the site has answered, and the address stays."""
    form = """<form onsubmit="enter(event)"><input name=name><input name=password type=password>
      <button>Go</button></form><script>
      async function enter(event) {
        event.preventDefault()
        document.body.innerHTML = "one moment"
        localStorage.sid = await (await fetch("/in")).text()
      }
      if (localStorage.sid === "1") document.body.innerHTML = "Inside"</script>"""

    async def answer(request):
        if request.path == "/in":
            await asyncio.sleep(0.3)
            return web.Response(text="1")
        return web.Response(text=form, content_type="text/html")

    async with serve_desk(answer, monkeypatch) as (_, desk), asyncio.timeout(120):
        known = settings(*desk, "browser.navigation_timeout=600", "browser.max_idle_wait=3")
        assert await log_in_to_sites(known, [task("desk")]) == ("desk",)


@pytest.mark.parametrize(
    ("keep", "is_kept"),
    [
        ("sessionStorage.sid = 1; location.reload()", "sessionStorage.sid"),
        ("indexedDB.open('sid').onsuccess = () => location.reload()", "(await indexedDB.databases()).length"),
    ],
    ids=["sessionStorage", "IndexedDB"],
)
async def test_a_login_that_another_context_could_not_start_with_is_refused(settings, monkeypatch, keep, is_kept):
    """Without IndexedDB, or from sessionStorage, all episodes started logged out, and `webgym login` had no doubt."""
    form = f"""<form onsubmit="event.preventDefault(); {keep}"><input name=name><input name=password type=password>
      <button>Go</button></form><script type=module>if ({is_kept}) document.body.innerHTML = "Inside"</script>"""

    async def answer(_):
        return web.Response(text=form, content_type="text/html")

    async with serve_desk(answer, monkeypatch) as (_, desk):
        known = settings(*desk)
        if "indexedDB" in keep:
            assert await log_in_to_sites(known, [task("desk")]) == ("desk",)
            assert await log_in_to_sites(known, [task("desk")]) == ()
        else:
            with pytest.raises(BoundaryError, match="another browser context is not let in"):
                await log_in_to_sites(known, [task("desk")])


@pytest.fixture
async def secured(mail, tmp_path):
    """The port of the mail site behind TLS, with a certificate that nobody signed."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*await asyncio.to_thread(write_certificate, tmp_path))

    async def relay(reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", mail.port)
        await _relay(reader, writer, far_reader, far_writer)
        writer.close()

    async with await asyncio.start_server(relay, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_certificate_that_nobody_signed_is_accepted_of_the_named_site_only(settings, secured):
    sites = ("sites.gitlab.isolation=reset", f"sites.gitlab.reset=https://127.0.0.1:{secured}/reset")
    addresses = (f"sites.gitlab.url=https://127.0.0.1:{secured}", f"sites.reddit.url=https://localhost:{secured}")
    refusing = settings(*sites, *addresses)
    with pytest.raises(BoundaryError) as refused:
        await log_in_to_sites(refusing, [task(LAB)])
    assert "sites.gitlab.ignore_https_errors=true" in str(refused.value.hint)
    checks = {check.name: check async for check in diagnose_sites(refusing)}
    assert "sites.gitlab.ignore_https_errors=true" in checks["site gitlab"].fix
    accepting = settings(*sites, *addresses, "sites.gitlab.ignore_https_errors=true")
    assert await log_in_to_sites(accepting, [task(LAB)]) == (LAB,)
    checks = {check.name: check async for check in diagnose_sites(accepting)}
    assert {name: check.status for name, check in checks.items()} == {
        **{"site gitlab": "ok", "reset gitlab": "ok", "login gitlab user": "ok", "site reddit": "missing"}
    }
    async with WebPool(accepting, InteractionMode.COORDINATES) as pool:
        environment = pool.new()
        try:
            await environment.reset(Task(id="s", environment="web", start_url=accepting.sites["gitlab"].url), 0)
            other = Task(id="o", environment="web", start_url=accepting.sites["reddit"].url)
            with pytest.raises(BoundaryError, match="the certificate of localhost is not valid") as refused:
                await environment.reset(other, 0)
            assert refused.value.kind is FailureKind.ADDRESS_REFUSED
        finally:
            await environment.close()
    remote = settings(*addresses, "sites.gitlab.ignore_https_errors=true", 'browser.cdp_urls=["ws://h:1"]')
    with pytest.raises(SettingsError, match="ignore_https_errors"):
        WebPool(remote, InteractionMode.COORDINATES)


async def test_a_site_that_goes_down_behind_a_page_that_stays_ends_the_episode(settings, monkeypatch):
    """The page shows nothing of it, and what a policy does on it has no effect: that would be a reward of 0."""

    async def answer(_):
        page = "<p>Inside</p><script>setInterval(() => fetch('/news'), 50)</script>"
        return web.Response(text=page, content_type="text/html")

    wait = Action(name=ActionName.WAIT, seconds=0.5)
    async with AsyncExitStack() as stack:
        async with serve_desk(answer, monkeypatch) as (_, desk):
            pool = await stack.enter_async_context(WebPool(settings(*desk), InteractionMode.SET_OF_MARKS))
            environment = pool.new()
            stack.push_async_callback(environment.close)
            await environment.reset(read_task({"id": "t", "instruction": "Wait.", "site": "desk"}), 1)
            assert (await environment.step(wait)).action_error is None
        with pytest.raises(BoundaryError, match="does not answer") as down:
            await environment.step(wait)
    assert down.value.kind is FailureKind.ENVIRONMENT_UNAVAILABLE
