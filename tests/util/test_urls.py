"""The site of an address."""

import pytest

from tests.tables import each
from webgym_cli.util.urls import has_userinfo, site_of


@each(
    ("url", "site"),
    [
        ("https://news.bbc.co.uk/x", "bbc.co.uk"),
        ("http://shop.example.com:8080/", "example.com"),
        ("http://127.0.0.1:7770/admin", "127.0.0.1:7770"),
        ("http://127.0.0.1:9999/", "127.0.0.1:9999"),
        ("http://intranet:8080/", "intranet:8080"),
        ("http://localhost/", "localhost"),
        ("http://a.example:99999/", ""),
        ("about:blank", ""),
        ("", ""),
    ],
)
def test_without_a_registrable_domain_host_and_port_are_the_site(url, site):
    """Several applications on one machine, as WebArena's are, are several sites."""
    assert site_of(url) == site


@pytest.mark.parametrize(
    ("url", "has"),
    [
        ("http://ann:pw@a.example/", True),
        ("http://ann@b.test/", True),
        ("http://c.example/@ann", False),
        ("x@y", False),
    ],
)
def test_a_user_before_the_host_is_noticed(url, has):
    assert has_userinfo(url) is has
