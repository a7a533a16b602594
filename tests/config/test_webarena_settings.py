"""The settings of WebArena's sites."""

import pytest

from webgym_cli.config.load import load
from webgym_cli.config.webarena import AccountSite, WebArenaSettings
from webgym_cli.errors import SettingsError
from webgym_cli.records.webarena import WebArenaSite


def webarena(*given):
    return load((), [f"webarena.{one}" for one in given]).webarena


def test_every_site_has_its_section():
    assert {site.value for site in WebArenaSite} <= set(WebArenaSettings.model_fields)
    found = {site: WebArenaSettings().site(site) for site in WebArenaSite}
    assert {site for site, known in found.items() if known.isolation == "serial"} == {
        site for site, known in found.items() if isinstance(known, AccountSite)
    }
    assert {site for site, known in found.items() if known.isolation == "parallel"} == {
        *(WebArenaSite.MAP, WebArenaSite.WIKIPEDIA, WebArenaSite.HOMEPAGE)
    }
    assert WebArenaSettings().addresses() == {}


def test_what_is_set_in_part_keeps_the_login_form():
    changed = webarena("reddit.account=somebody", "reddit.url=http://[::1]:9999/").reddit
    assert changed == WebArenaSettings().reddit.model_copy(
        update={"account": "somebody", "url": "http://[::1]:9999"},
    )
    assert (changed.login_page, changed.account_field) == ("/login", "label=Username")


def test_passwords_are_asked_for_by_the_sites_that_are_there():
    known = webarena("gitlab.url=https://lab.test", "map.url=http://map.test", "gitlab.password_env_var=LAB")
    assert known.addresses() == {WebArenaSite.GITLAB: "https://lab.test", WebArenaSite.MAP: "http://map.test"}
    assert known.password_variables() == ("LAB",)


def test_no_password_stands_in_settings():
    names = {name for site in WebArenaSite for name in type(WebArenaSettings().site(site)).model_fields}
    assert {name for name in names if "password" in name} == {"password_field", "password_env_var"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("map.url=map.test", r"webarena\.map\.url: 'map.test' is no http\(s\) address"),
        ("map.url=http://map.test:x", r"webarena\.map\.url: .* is no http\(s\) address"),
        ("map.url=ftp://map.test", r"webarena\.map\.url: .* is no http\(s\) address"),
        ("map.isolation=reset", r'webarena\.map: isolation "reset" needs reset'),
        ("map.isolation=alone", r"webarena\.map\.isolation: "),
        ("map.account=somebody", r"unknown setting 'webarena\.map\.account'"),
        ("login_hours=0", r"webarena\.login_hours"),
    ],
)
def test_what_is_wrong_is_named(given, words):
    with pytest.raises(SettingsError, match=words):
        webarena(given)
