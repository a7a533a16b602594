"""What the desk gives: addresses, logins, turns and resets; without a browser."""

import asyncio
import json
import os
import shlex
import stat
import sys
import time

import pytest
from filelock import FileLock, Timeout

from tests.environments.sites.desk import Desk
from webgym_cli.config.load import load
from webgym_cli.environments.registry import describe_isolation
from webgym_cli.environments.sites.accounts import LoginStore, login_sites, make_rules, task_sites
from webgym_cli.environments.sites.site_scheduler import (
    exclusive_sites,
    map_isolation,
    require_sites,
)
from webgym_cli.environments.sites.site_setup import SETUPS, SiteSetup
from webgym_cli.errors import BoundaryError, MissingStageError, SettingsError, StoreError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.webarena import WebArenaSite

ADDRESSES = [f"sites.{site}.url=http://10.0.0.1:{7000 + at}" for at, site in enumerate(WebArenaSite)]


def task(*sites, state=None, environment="webarena"):
    extra = {"sites": list(sites), "storage_state": state}
    return Task(id="t1", environment=environment, start_url="http://a.test", extra=extra)


@pytest.fixture
def settings(tmp_path):
    return lambda *given: load(["webarena"], [f"browser.auth_folder={tmp_path / 'auth'}", *given])


@pytest.fixture
def states(settings):
    return LoginStore.of(settings())


@pytest.fixture
def keep(states):
    """Keep a login with one cookie."""

    def keep(site, value="1", domain="10.0.0.1", name="id"):
        cookie = {"name": name, "value": value, "domain": domain, "path": "/"}
        origin = {"origin": f"http://{site}.test", "localStorage": []}
        states.save(site, {"cookies": [cookie], "origins": [origin]})

    return keep


# --- addresses


def test_placeholders_become_addresses_without_a_slash_too_many(settings):
    known = settings("sites.shopping.url=http://h.test:7770/", "sites.map.url=http://[::1]:3000")
    assert make_rules(known).names == {"h.test", "::1"}
    desk = Desk(known)
    assert desk.address("__SHOPPING__/a __MAP__ __OTHER__") == "http://h.test:7770/a http://[::1]:3000 __OTHER__"
    with pytest.raises(SettingsError, match=r"sites\.reddit\.url is empty"):
        desk.address("__REDDIT__/f/books")


def test_what_tasks_lack_is_told_with_task_site_and_setting(settings, keep, monkeypatch):
    tasks = [task("shopping", state="./.auth/shopping_state.json")]
    with pytest.raises(SettingsError, match=r"task t1: sites\.shopping\.url is empty"):
        require_sites(settings(), tasks)
    with pytest.raises(UsageError, match=r"WEBARENA_SHOPPING_PASSWORD .*shopping .*emma"):
        require_sites(settings(*ADDRESSES), tasks)
    with pytest.raises(MissingStageError, match="the login of shopping is of no use: missing") as missing:
        require_sites(settings(*ADDRESSES, "sites.shopping.login=manual"), tasks)
    assert missing.value.hint == "webgym login shopping"
    with monkeypatch.context() as patch:
        patch.setenv("WEBARENA_SHOPPING_PASSWORD", "x")
        require_sites(settings(*ADDRESSES), tasks)
    keep(WebArenaSite.SHOPPING)
    require_sites(settings(*ADDRESSES, "sites.shopping.login=manual"), tasks)
    require_sites(settings(*ADDRESSES), tasks)
    require_sites(settings(), [task("shopping", environment="web")])


ON_DESK = {"id": "d1", "environment": "web", "instruction": "Do.", "site": "desk"}
DESK = ("sites.desk.url=http://desk.test", "sites.desk.accounts.agent.storage_state=agent.json")


def test_a_task_names_its_site_and_role(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known, plain = settings(*DESK), Task(**ON_DESK)
    assert (task_sites(plain), login_sites(plain)) == (("desk",), ())
    require_sites(known, [plain])
    agent = Task(**ON_DESK, role="agent")
    assert login_sites(agent) == ("desk@agent",)
    with pytest.raises(MissingStageError, match="the login of desk@agent is of no use: missing") as missing:
        require_sites(known, [agent])
    assert "agent.json" in missing.value.hint
    (tmp_path / "agent.json").write_text('{"cookies": [], "origins": []}')
    os.utime(tmp_path / "agent.json", (0, time.time() - 13 * 3600))  # we only read it: its age does not matter
    require_sites(known, [agent])
    assert Desk(known).storage_state(agent) == tmp_path / "agent.json"


def test_a_site_without_an_entry_is_the_name_of_a_set_up_function(settings, monkeypatch):
    plain = Task(**{**ON_DESK, "site": "mine", "start_url": "http://mine.test/a"})
    require_sites(load(), [plain])
    with pytest.raises(UsageError, match="there is no site 'mine'"):
        require_sites(settings(), [plain])
    monkeypatch.setitem(SETUPS.registered, "mine", SiteSetup.of(lambda context: None, "mine"))
    require_sites(settings(), [plain])
    with pytest.raises(UsageError) as without_address:
        require_sites(load(), [plain.model_copy(update={"start_url": "/a"})])
    assert "start_url" in without_address.value.hint
    assert exclusive_sites(settings(), plain) == frozenset()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (task("bank"), "task t1: sites or storage_state: there is no site 'bank'"),
        (task("map", state="./.auth/bank_state.json"), "task t1: sites or storage_state: there is no site 'bank'"),
        (task("map", state="cookies.json"), "task t1: storage_state: 'cookies.json' is not named like"),
        (task("map", state="map_state.json"), "sites.map.accounts: nobody logs in as user: it has no accounts"),
        (Task(**ON_DESK | {"site": "dsk"}), "task d1: site: there is no site 'dsk'"),
        (Task(**ON_DESK, role="boss"), "sites.desk.accounts: nobody logs in as boss: its roles are agent"),
        (Task(**ON_DESK | {"site": "", "role": "agent"}), "task d1: role: 'agent' .* and the task has no site"),
    ],
)
def test_a_task_on_no_site_or_of_no_role_is_refused(settings, bad, words):
    with pytest.raises(UsageError, match=words):
        require_sites(settings(*ADDRESSES, *DESK), [bad])


def test_tenants_are_for_any_number_of_episodes_and_nodes(settings):
    tenants = (*DESK, "sites.desk.isolation=tenant", "rollout.executor=ray")
    with pytest.raises(UsageError, match=r"task d1: sites\.desk\.isolation .*tenant"):
        require_sites(settings(*tenants), [Task(**ON_DESK)])
    known = settings(*tenants, "sites.desk.reset=make {episode}")
    require_sites(known, [Task(**ON_DESK)])
    assert exclusive_sites(known, Task(**ON_DESK)) == frozenset()


def test_sites_that_take_one_at_a_time_are_for_one_machine(settings):
    ray = [*ADDRESSES, "rollout.executor=ray"]
    with pytest.raises(SettingsError, match=r"task t1: reddit takes one episode at a time \(sites.reddit.isol"):
        require_sites(settings(*ray), [task("map", "reddit")])
    require_sites(settings(*ray), [task("map")])
    require_sites(settings(*ray, "sites.reddit.isolation=parallel"), [task("map", "reddit")])


def test_sites_and_their_isolation_are_told_in_one_order(settings):
    chosen = settings("sites.reddit.isolation=reset", "sites.reddit.reset=/bin/true")
    tasks = [task("map", "reddit"), task("gitlab", "map"), task("shopping", environment="web")]
    assert task_sites(tasks[1]) == (WebArenaSite.GITLAB, WebArenaSite.MAP)
    assert map_isolation(chosen, tasks) == {
        WebArenaSite.REDDIT: "reset",
        WebArenaSite.GITLAB: "serial",
        WebArenaSite.MAP: "parallel",
    }
    words = "sites: gitlab one at a time; map any number of episodes; reddit one at a time, after a reset"
    assert describe_isolation(map_isolation(chosen, tasks)) == words
    assert exclusive_sites(chosen, tasks[0]) == {WebArenaSite.REDDIT}
    assert exclusive_sites(chosen, tasks[2]) == frozenset()


# --- logins on disk


def test_a_login_of_several_sites_is_made_of_theirs(settings, states, keep):
    pair = task("gitlab", "reddit", state="./.auth/gitlab.reddit_state.json")
    assert login_sites(pair) == (WebArenaSite.GITLAB, WebArenaSite.REDDIT)
    keep(WebArenaSite.GITLAB, name="lab")
    keep(WebArenaSite.REDDIT, name="forum")
    desk = Desk(settings())
    path = desk.storage_state(pair)
    assert path == states.folder / "gitlab.reddit_state.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    joined = json.loads(path.read_text())
    assert [cookie["name"] for cookie in joined["cookies"]] == ["lab", "forum"]
    assert [origin["origin"] for origin in joined["origins"]] == ["http://gitlab.test", "http://reddit.test"]
    keep(WebArenaSite.REDDIT, name="forum", value="2")
    assert [cookie["value"] for cookie in json.loads(desk.storage_state(pair).read_text())["cookies"]] == ["1", "2"]
    assert desk.storage_state(task("gitlab", state="gitlab_state.json")) == states.folder / "gitlab_state.json"
    assert desk.storage_state(task("gitlab")) is None


def test_two_sites_that_overwrite_each_others_login_are_refused(settings, keep):
    keep(WebArenaSite.SHOPPING, value="a", name="PHPSESSID")
    keep(WebArenaSite.REDDIT, value="b", name="PHPSESSID")
    words = "shopping and reddit keep their logins in the same cookie 'PHPSESSID' of the host 10.0.0.1"
    with pytest.raises(UsageError, match=words):
        Desk(settings()).storage_state(task(state="shopping.reddit_state.json"))
    keep(WebArenaSite.REDDIT, value="b", name="PHPSESSID", domain="10.0.0.2")
    assert Desk(settings()).storage_state(task(state="shopping.reddit_state.json"))


def test_a_login_that_is_missing_or_too_old_fails_the_episode(settings, states, keep):
    desk, shopping = Desk(settings("sites.shopping.login_hours=2")), task(state="shopping_state.json")
    with pytest.raises(BoundaryError, match="the login of shopping is missing") as failed:
        desk.storage_state(shopping)
    assert (failed.value.kind, failed.value.hint) == (FailureKind.ENVIRONMENT_ERROR, "webgym login shopping")
    keep(WebArenaSite.SHOPPING)
    path = desk.storage_state(shopping)
    os.utime(path, (0, time.time() - 3 * 3600))
    with pytest.raises(BoundaryError, match=r"the login of shopping is expired \(3.0 hours old\)"):
        desk.storage_state(shopping)
    cookie = '{"name": "s", "value": "1", "domain": "a.test", "path": "/", "sameSite": "no_restriction"}'
    for text in ("[]", '{"cookies": [{"name": "s"}]}', f'{{"cookies": [{cookie}]}}'):
        path.write_text(text)
        with pytest.raises(BoundaryError, match="the login of shopping is no storage state"):
            desk.storage_state(shopping)


# --- turns

PAIR = (WebArenaSite.SHOPPING, WebArenaSite.GITLAB)


class Episodes:
    """Episodes on sites, each of which stays until it is told to go; notes who is there."""

    def __init__(self, desk):
        self.desk, self.there, self.order = desk, set(), []
        self.tasks = []

    def start(self, name, *sites, desk=None):
        go, came = asyncio.Event(), asyncio.Event()

        async def stay():
            async with (desk or self.desk).reserve(sites):
                self.there.add(name)
                self.order.append(name)
                came.set()
                await go.wait()
                self.there.discard(name)

        running = asyncio.create_task(stay())
        self.tasks.append(running)
        return running, came, go


@pytest.fixture
async def episodes(settings):
    result = Episodes(Desk(settings()))
    yield result
    for running in result.tasks:
        running.cancel()
    await asyncio.gather(*result.tasks, return_exceptions=True)


async def calm():
    """Let everything go on that can, files included."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_serial_site_is_one_episodes_in_the_order_in_which_they_came(episodes):
    first, second, third = (episodes.start(name, WebArenaSite.REDDIT) for name in "abc")
    other, shared = episodes.start("d", WebArenaSite.GITLAB), episodes.start("e", WebArenaSite.MAP)
    await asyncio.gather(*(came.wait() for _, came, _ in (first, other, shared)))
    await calm()
    assert episodes.there == {"a", "d", "e"}
    for running, following in ((first, second), (second, third)):
        running[2].set()
        await following[1].wait()
    assert [name for name in episodes.order if name in "abc"] == ["a", "b", "c"]


async def test_sites_that_may_be_shared_are(episodes):
    many = [episodes.start(str(number), WebArenaSite.MAP, WebArenaSite.WIKIPEDIA) for number in range(5)]
    await asyncio.gather(*(came.wait() for _, came, _ in many))
    assert len(episodes.there) == 5


async def test_several_sites_are_taken_in_one_order_so_nobody_waits_for_each_other(episodes):
    many = [episodes.start(str(at), *(PAIR if at % 2 else PAIR[::-1])) for at in range(6)]
    for _, _, go in many:
        go.set()
    await asyncio.wait_for(asyncio.gather(*(running for running, _, _ in many)), 60)
    assert sorted(episodes.order) == list("012345")


async def test_whoever_gives_up_waiting_holds_nothing(episodes):
    first, second, third = (episodes.start(name, *PAIR) for name in "abc")
    await first[1].wait()
    await calm()
    second[0].cancel()
    first[2].set()
    await third[1].wait()
    assert episodes.there == {"c"}
    third[0].cancel()  # in the middle of its episode
    fourth = episodes.start("d", *PAIR)
    await fourth[1].wait()


async def test_desks_of_one_folder_take_turns(episodes, settings):
    """As two runs do: the lock is a file's."""
    first, second = (episodes.start(name, WebArenaSite.REDDIT) for name in "ac")
    await first[1].wait()
    third = episodes.start("b", WebArenaSite.REDDIT, desk=Desk(settings()))
    elsewhere = Desk(settings("browser.auth_folder=" + str(LoginStore.of(settings()).folder / "other")))
    other = episodes.start("x", WebArenaSite.REDDIT, desk=elsewhere)
    await other[1].wait()
    assert episodes.there == {"a", "x"}
    next_ = FileLock(LoginStore.of(settings()).folder / "reddit.next")
    await asyncio.wait_for(_until_held(next_), 30)
    first[2].set()  # "c" of the same desk is not handed the site: "b" waits at the file for longer
    await third[1].wait()
    assert not second[1].is_set()
    third[2].set()
    await second[1].wait()


async def _until_held(lock):
    while True:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return
        lock.release()
        await asyncio.sleep(0.01)  # who takes a file's lock tells nobody


HOLDER = """
import asyncio, sys
from webgym_cli.config.load import load
from tests.environments.sites.desk import Desk
from webgym_cli.records.webarena import WebArenaSite

async def hold():
    async with Desk(load(["webarena"], ["browser.auth_folder=" + sys.argv[1]])).reserve([WebArenaSite.REDDIT]):
        print("here", flush=True)
        await asyncio.Event().wait()

asyncio.run(hold())
"""


async def test_a_process_that_dies_gives_its_site_back(episodes, settings, states):
    command = (sys.executable, "-c", HOLDER, str(states.folder))
    holder = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert await holder.stdout.readline() == b"here\n"
    waiting = episodes.start("a", WebArenaSite.REDDIT)
    await calm()
    assert episodes.there == set()
    holder.kill()
    await holder.wait()
    await asyncio.wait_for(waiting[1].wait(), 30)


async def test_a_folder_that_is_none_is_named(settings, tmp_path):
    (tmp_path / "file").write_text("")
    desk = Desk(settings(f"browser.auth_folder={tmp_path / 'file'}"))
    refused = await desk.refuse(StoreError, "file: can't be made", WebArenaSite.REDDIT)
    assert refused.hint == "choose another browser.auth_folder"
    (tmp_path / "auth" / "reddit.lock").mkdir(parents=True)
    await Desk(settings()).refuse(StoreError, r"reddit\.lock: can't be locked", WebArenaSite.REDDIT)


# --- resets


@pytest.fixture
def resetting(settings, mail):
    """A desk whose reddit is reset by a hook before each episode."""

    def make(hook, *given):
        site = [f"sites.reddit.url={mail.url}", "sites.reddit.isolation=reset", f"sites.reddit.reset={hook}"]
        return Desk(settings(*site, *given))

    return make


async def test_a_site_is_reset_before_each_episode_by_its_address_or_a_command(resetting, mail, tmp_path, monkeypatch):
    desk = resetting(f"{mail.url}/reset")
    for done in (1, 2):
        async with desk.reserve([WebArenaSite.REDDIT]):
            assert mail.resets == done
    monkeypatch.chdir(tmp_path)
    note = "import pathlib; pathlib.Path('note').open('a').write('x')"
    desk = resetting(shlex.join([sys.executable, "-c", note]))
    for done in ("x", "xx"):
        async with desk.reserve([WebArenaSite.REDDIT]):
            assert (tmp_path / "note").read_text() == done


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("sh -c 'echo no disk; exit 3'", r"the reset of reddit failed: .* ended with 3: no disk; log: .*reddit.res"),
        ("no-such-program", "ended with 127: can't start no-such-program"),
        ("sleep 60", "the reset of reddit failed: took longer than 0.5 s"),
        ("http://127.0.0.1:1/reset", "can't be reached"),
        ("{mail}/reset", "/reset answers with status 500"),
        ("{mail}/reset?401", r"status 401: it asks .*; sites.reddit.reset may be http://USER:\$VARIABLE@HOST/PATH"),
        ("{mail}/folder/inbox", "answers with status 30. and leads to .*/login"),
        ("echo done 2>/dev/null", "2>/dev/null needs a shell"),
    ],
)
async def test_a_reset_that_fails_is_the_environments_error_and_gives_the_site_back(resetting, mail, hook, words):
    mail.reset_status = int(hook.partition("?")[2] or 500)
    limits = ("sites.reddit.reset_timeout=0.5",) if hook == "sleep 60" else ()
    desk = resetting(hook.replace("{mail}", mail.url), *limits)
    for _ in range(2):
        failed = await desk.refuse(BoundaryError, words, WebArenaSite.REDDIT)
        assert failed.kind is FailureKind.ENVIRONMENT_ERROR
        assert "sites.reddit.re" in failed.hint


async def test_a_reset_is_done_when_the_site_answers_again(resetting, mail):
    mail.status = 503
    began = asyncio.Event()

    async def episode(desk):
        async with desk.reserve([WebArenaSite.REDDIT]):
            began.set()

    running = asyncio.create_task(episode(resetting("/bin/true")))
    await asyncio.wait_for(mail.came.wait(), 30)
    assert not began.is_set()
    mail.status = 200
    await asyncio.wait_for(running, 30)


# --- starts of episodes

TENANT = Task(**{**ON_DESK, "start_url": "/orders", "site": "reddit", "role": ""})


STARTS = {
    "/bin/true": ("{site}/orders", None),
    "echo made {episode}": ("{site}/orders", None),
    """echo '{{"start_url": "/t/{episode}/"}}'""": ("{site}/t/train-0-3.1/", None),
    """sh -c 'echo noise; echo "$0"' '{{"start_url": "http://t7.test/{seed}"}}'""": ("http://t7.test/7", None),
    """echo '{{"state": {{"tenant": "{episode}-{seed}"}}}}'""": ("{site}/orders", {"tenant": "train-0-3.1-7"}),
    """echo '{{"cookies": [{{"name": "a", "value": "tenant-cookie"}}]}}'""": ("{site}/orders", None),
}


@pytest.mark.parametrize("hook", STARTS)
@pytest.mark.parametrize("isolation", ["tenant", "reset"])
async def test_a_reset_answers_how_the_episode_starts(resetting, mail, states, hook, isolation):
    start_url, state = STARTS[hook]
    desk = resetting(hook.replace("{{", "{").replace("}}", "}"), f"sites.reddit.isolation={isolation}")
    async with desk.start_episode(TENANT, "train-0-3.1", 7) as start:
        assert (start.start_url, start.state) == (start_url.replace("{site}", mail.url), state)
        cookie = {"url": mail.url, "name": "a", "value": "tenant-cookie"}
        assert start.cookies == ((cookie,) if "cookies" in hook else ())
    stored = "".join(file.read_text() for file in states.folder.iterdir() if file.is_file())
    assert "tenant-cookie" not in stored


async def test_tenants_are_made_side_by_side(resetting):
    desk = resetting("/bin/true", "sites.reddit.isolation=tenant")
    async with desk.start_episode(TENANT, "a", 1), desk.start_episode(TENANT, "b", 2):
        pass


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ('{"url": "/"}', "the reset of reddit .*: url: there is no such field"),
        ('{"cookies": 5}', "the reset of reddit .*: cookies"),
        ("{not json", "the reset of reddit failed: its answer is not JSON"),
    ],
)
async def test_an_answer_that_is_none_is_the_environments_error(resetting, answer, words):
    desk = resetting(f"echo '{answer}'")
    failed = await desk.refuse(BoundaryError, words, start=desk.start_episode(TENANT, "a", 1))
    assert failed.kind is FailureKind.ENVIRONMENT_ERROR
