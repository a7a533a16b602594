"""The table of sites in the settings."""

import json
import warnings

import pytest

from tests.tables import each
from webgym_cli.config.load import flat_values, load
from webgym_cli.config.renamed import RenamedSettingWarning
from webgym_cli.config.sites import SiteAccount, SiteSettings
from webgym_cli.config.trust import select_executed
from webgym_cli.errors import SettingsError
from webgym_cli.records.webarena import WebArenaSite

DESK = """\
sites:
  desk:
    url: http://127.0.0.1:8000/
    isolation: tenant
    reset: python reset.py {episode}
    accounts:
      agent: {account: amy, password_env_var: DESK_AGENT}
      admin: {storage_state: admin.json}
"""


def test_the_presets_of_webarena_have_its_sites():
    sites = load(["webarena"]).sites
    assert list(sites) == [site.value for site in WebArenaSite]
    assert {name for name, site in sites.items() if site.accounts} == {*list(sites)[:4]}
    assert {name for name, site in sites.items() if site.isolation == "parallel"} == {*list(sites)[4:]}
    assert load().sites == {}


def test_sources_are_merged_key_by_key(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(DESK + "  reddit: {url: 'http://[::1]:9999/', accounts: {user: {account: somebody}}}\n")
    given = ["sites.desk.accounts.agent.account=bob", "sites.map.url=http://m.test"]
    sites = load(["webarena", str(file)], given).sites
    user = SiteAccount(account="somebody", password_env_var="WEBARENA_REDDIT_PASSWORD")
    assert sites["reddit"].accounts == {"user": user}
    assert (sites["reddit"].url, sites["reddit"].login_page) == ("http://[::1]:9999", "/login")
    assert sites["desk"].accounts["agent"] == SiteAccount(account="bob", password_env_var="DESK_AGENT")
    assert (sites["desk"].is_shared, sites["map"].is_shared, sites["reddit"].is_shared) == (True, True, False)


@pytest.mark.parametrize(
    ("yaml", "words"),
    [
        ("{desk: {ulr: http://a.test}}", r"site.yaml: unknown setting 'sites.desk.ulr'; did you mean 'sites.desk.url'"),
        ("{desk: {accounts: {a: {acount: x}}}}", r"site.yaml: unknown setting 'sites.desk.accounts.a.acount'; did you"),
        ("{desk: {accounts: {a: {account: x}}}}", r"site.yaml: sites.desk.accounts.a: no variable holds the password"),
        ("{desk: {accounts: {a: {password_env_var: X}}}}", r"site.yaml: sites.desk.accounts.a: a role needs account"),
        ("{desk: {accounts: [a]}}", r"site.yaml: sites.desk.accounts: it should be a table"),
        ("{desk: 5}", r"site.yaml: sites.desk: it should be a table"),
        ("5", r"site.yaml: sites: "),
        ("{desk: {url: desk.test}}", r"site.yaml: sites.desk.url: 'desk.test' is no http\(s\) address"),
        ("{desk: {url: 'http://desk.test:x'}}", r"site.yaml: sites.desk.url: .* is no http\(s\) address"),
        ("{desk: {isolation: reset}}", r'site.yaml: sites.desk: isolation "reset" needs reset'),
        ("{desk: {reset: 'make {episodes}'}}", r"site.yaml: sites.desk.reset: {episodes} is no placeholder; there are"),
        ("{desk: {reset: make 'it}}", r"site.yaml: sites.desk.reset: No closing quotation"),
        ("{desk: {isolation: alone}}", r"site.yaml: sites.desk.isolation: "),
        ("{desk: {login_hours: 0}}", r"site.yaml: sites.desk.login_hours"),
        ("{'my desk': {url: 'http://a.test'}}", r"site.yaml: 'sites.my desk.url': names of sites and of roles are"),
        ("{desk: {url: 'http://a.test/?q=1'}}", r"site.yaml: sites.desk.url: .* paths are appended to it"),
        ("{desk: {reset: 'http://u:password@h/reset'}}", r"site.yaml: sites.desk.reset: an address holds a key"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_place(tmp_path, yaml, words):
    file = tmp_path / "site.yaml"
    file.write_text(f"sites: {yaml}\n")
    with pytest.raises(SettingsError, match=words) as refused:
        load([str(file)])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("yaml", ["", " {}", " null"])
def test_an_empty_table_is_no_site(tmp_path, yaml):
    (file := tmp_path / "site.yaml").write_text(f"sites:{yaml}\n")
    assert load([str(file)]).sites == {}


def test_the_environment_sets_a_site(monkeypatch):
    monkeypatch.setenv("WEBGYM_SITES__DESK__URL", "http://desk.test")
    assert load().sites["desk"].url == "http://desk.test"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("webarena.shopping.url=http://a.test", "sites.shopping.url"),
        ("webarena.map.isolation=serial", "sites.map.isolation"),
        ("webarena.auth_folder=/x", "browser.auth_folder"),
    ],
)
def test_old_keys_work_with_one_note_each(old, new):
    with pytest.warns(RenamedSettingWarning, match=rf"is called {new} now") as notes:
        settings = load((), [old])
    assert len(notes) == 1
    assert str(flat_values(settings)[new]) == old.partition("=")[2]


def test_an_old_account_is_that_of_the_role_user():
    with pytest.warns(RenamedSettingWarning):
        old = load(["webarena"], ["webarena.reddit.account=me", "webarena.reddit.password_env_var=ME"])
    assert old.sites["reddit"].accounts == {"user": SiteAccount(account="me", password_env_var="ME")}


@pytest.mark.parametrize(("name", "value"), [("login", "manual"), ("login_hours", 3.0), ("reset_timeout", 9.0)])
def test_limits_of_all_sites_are_those_of_each_now(name, value):
    with pytest.warns(RenamedSettingWarning, match=rf"webarena\.{name} is sites\.NAME\.{name} of each") as notes:
        settings = load(["webarena"], [f"webarena.{name}={value}", f"sites.map.{name}={getattr(SiteSettings(), name)}"])
    assert len(notes) == 1
    given = {site: getattr(one, name) for site, one in settings.sites.items()}
    assert given.pop("map") == getattr(SiteSettings(), name), "a site's own value takes precedence"
    assert list(given.values()) == [value] * 6


def test_a_run_of_an_older_version_keeps_the_sites_that_it_had(tmp_path):
    site = {"url": "", "isolation": "serial", "account": "a", "password_env_var": "A", "login_page": "/l"}
    old = {"shopping": site, "reddit": {**site, "url": "http://r.test"}, "login": "manual", "login_hours": 12.0}
    (run := tmp_path / "config.json").write_text(json.dumps({"seed": 3, "webarena": old}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sites = load(run_config=run).sites
    assert list(sites) == ["reddit"] and sites["reddit"].login == "manual"
    assert (sites["reddit"].accounts["user"].account, sites["reddit"].login_page) == ("a", "/l")
    assert load(run_config=run).seed == 3


def test_a_reset_command_an_address_elsewhere_and_a_stored_login_need_trust(tmp_path):
    (file := tmp_path / "site.yaml").write_text(DESK)
    assert select_executed(flat_values(load([str(file)]))) == {
        "sites.desk.reset": "python reset.py {episode}",
        "sites.desk.accounts.admin.storage_state": "admin.json",
    }
    assert select_executed({"sites.desk.url": "http://a.test"}) == {"sites.desk.url": "http://a.test"}


PAGES = {page: page for page in ("", "/login", "?next=/", "#/login")}
PAGES |= {"login": "/login", "@elsewhere.example/": "/@elsewhere.example/", ".elsewhere.example": "/.elsewhere.example"}


@each(("page", "path"), list(PAGES.items()))
def test_a_page_stays_on_its_site(page, path):
    site = SiteSettings(url="http://localhost", login_page=page, proof_page=page)
    assert (site.login_page, site.proof_page) == (path, path)
