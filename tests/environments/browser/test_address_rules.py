"""Which addresses may be reached, by their text alone."""

import ipaddress

from tests.tables import each
from webgym_cli.environments.browser import address_rules
from webgym_cli.environments.browser.address_rules import AddressRules

RULES = AddressRules()

PRIVATE = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.255.0.1 169.254.169.254
    172.16.0.1 172.31.255.255 161.26.0.10 166.9.1.1 168.63.129.16 192.0.0.1 192.0.0.8 192.0.0.9 192.0.0.192
    192.80.8.124 192.88.99.1 100.100.100.200 192.0.2.1 192.168.0.1 198.18.0.1 224.0.0.1 240.0.0.1 255.255.255.255 ::
    ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:a9fe:a9fe ::ffff:0:7f00:1 64:ff9b::7f00:1 64:ff9b::a83f:8110
    ::ffff:168.63.129.16 2002:a83f:8110::1 2002:c000:c0:: 64:ff9b::10.0.0.1 64:ff9b:1::1 2002:7f00:1::
    2002:c0a8:0101::1 2001::1 2001:db8::1 fc00::1 fd12:3456::1 fd00:ec2::254 fd20:ce::254 3fff::1 5f00::1
    2001:4:112::1 fe80::1 fec0::1 ff02::1 100::1
"""
PUBLIC = """
    1.1.1.1 93.184.216.34 100.63.255.255 100.128.0.1 172.15.255.255 172.32.0.1 192.167.255.255 2606:4700:4700::1111
    ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1
"""
NOT_THE_WEB = """
    file:///etc/passwd FILE:///etc/passwd chrome://version chrome-extension://x/y view-source:http://example.com/
    data:text/html,x javascript:alert(1) about:blank blob:http://example.com/x filesystem:http://example.com/x
    ftp://example.com/ ws://example.com/ devtools://devtools/x http:///path http:example.com //example.com/
    example.com
"""


def bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


@each("address", PRIVATE.split())
def test_private_addresses_are_refused(address: str):
    assert "private" in (RULES.refuse_address(ipaddress.ip_address(address)) or "")
    assert "private" in (RULES.refuse_host(address) or "")
    for url in (f"http://{bracketed(address)}/", f"https://user:word@{bracketed(address)}:8443/x?y#z"):
        assert "private" in (RULES.refuse_url(url) or "")


@each("address", PUBLIC.split())
def test_public_addresses_are_not(address: str):
    assert RULES.refuse_address(ipaddress.ip_address(address)) is None
    assert RULES.refuse_url(f"http://{bracketed(address)}/") is None


@each("host", ["localhost", "LOCALHOST", "localhost.", "a.localhost", "fe80::1%eth0", "127.0.0.1."])
def test_names_and_spellings_of_this_machine(host: str):
    assert RULES.refuse_url(f"http://{bracketed(host)}/")


@each("url", [*NOT_THE_WEB.split(), ""])
def test_only_the_web_can_be_visited(url: str):
    assert "only http and https" in (RULES.refuse_url(url) or "")


def test_what_is_no_address_is_refused_and_names_are_left_to_whoever_resolves_them():
    for url in ("http://[::1", "http://example.com:99999/", "http://example.com:x/"):
        assert "is not an address" in (RULES.refuse_url(url) or "")
    for url in ("https://example.com/", "http://EXAMPLE.com.:8080/a?b"):
        assert RULES.refuse_url(url) is None


def test_the_setting_opens_what_it_names_only():
    rules = AddressRules.of(("10.1.2.3", "192.168.4.0/24", "[fd00::5]", "Intranet.", "fe80::/10"))
    for allowed in ("10.1.2.3", "192.168.4.99", "[fd00::5]", "intranet", "INTRANET.", "[fe80::9]", "[::ffff:10.1.2.3]"):
        assert rules.refuse_url(f"http://{allowed}/") is None, allowed
    for refused in ("10.1.2.4", "192.168.5.1", "[fd00::6]", "127.0.0.1", "localhost", "a.localhost"):
        assert rules.refuse_url(f"http://{refused}/"), refused
    assert AddressRules.of(["localhost"]).refuse_url("http://localhost:8000/") is None
    assert AddressRules.of(["localhost"]).refuse_url("http://127.0.0.1:8000/")


def test_places_stand_for_fixed_addresses():
    rules = RULES.with_places({"shop.test": ("127.0.0.1", 81)})
    assert rules.places == {"shop.test": ("127.0.0.1", 81)}
    assert rules.refuse_url("http://shop.test/") is None
    assert RULES.places == {}


def test_addresses_of_this_machine_are_refused_however_public(monkeypatch):
    own = {"8.8.4.4", "2001:4860::99"}
    monkeypatch.setattr(address_rules, "_is_own", lambda address: str(address) in own)
    for url in ("8.8.4.4", "[2001:4860::99]", "[::ffff:8.8.4.4]", "[64:ff9b::8.8.4.4]", "[2002:808:404::1]"):
        assert "this machine" in (RULES.refuse_url(f"http://{url}:8265/") or "")
    assert RULES.refuse_url("http://8.8.8.8:8265/") is None
    assert AddressRules.of(["8.8.4.4"]).refuse_url("http://[::ffff:8.8.4.4]/") is None


def test_this_machine_is_known_by_its_interfaces(monkeypatch):
    interfaces = [ipaddress.ip_address(address) for address in address_rules._list_own() if "." in address]
    for nonlocal_bind in (False, True):
        monkeypatch.setattr(address_rules, "_binds_any", lambda version, binds=nonlocal_bind: binds)
        assert all(map(address_rules._is_own, interfaces))
    assert not address_rules._is_own(ipaddress.ip_address("192.0.2.1"))
    monkeypatch.setattr(address_rules, "_can_bind", lambda address: True)
    assert not address_rules._is_own(ipaddress.ip_address("192.0.2.1"))
