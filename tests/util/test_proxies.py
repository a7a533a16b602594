"""Proxies of the environment: which requests take one, and what is said of malformed variables."""

import asyncio
import os
import ssl

import httpx
import pytest

from webgym_cli.agent.client.chat import describe_error, openai_client
from webgym_cli.config.endpoint import EndpointSettings
from webgym_cli.errors import SettingsError
from webgym_cli.util.http_client import BoundedClient
from webgym_cli.util.proxies import check_network_variables, describe_proxy, exempt_loopback, find_proxy
from webgym_cli.venvs.locate import own_environ

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir", "sslkeylogfile")
NAMES += ("requests_ca_bundle", "curl_ca_bundle")
# Nothing listens there.
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    # tests share one context otherwise
    monkeypatch.setattr(ssl, "create_default_context", getattr(ssl.create_default_context, "__wrapped__", None))


LOCAL = ["127.0.0.1", "127.8.9.10", "127.1", "localhost", "LOCALHOST", "localhost.", "a.localhost", "[::1]"]
LOCAL += ["0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "2130706433"]


@pytest.mark.parametrize("host", LOCAL)
@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
def test_this_machine_takes_no_proxy(monkeypatch, host, variable):
    monkeypatch.setenv(variable, NOWHERE)
    assert find_proxy("http://example.com/").variable == variable
    assert find_proxy(f"http://{host}:8000/v1") is None
    assert find_proxy(f"ws://{host}/") is None


@pytest.mark.parametrize(
    ("exempt", "address", "direct"),
    [
        ("fe11::/16", "http://[fe11:2::1]/", True),
        ("fe11::/16", "http://[fe12::1]/", False),
        ("[2001:db8::1]", "http://[2001:db8::1]/", True),
        ("[2001:db8::1]:80", "http://[2001:db8::1]/", True),
        ("[2001:db8::1]:81", "http://[2001:db8::1]/", False),
        ("2001:db8::1", "http://[2001:db8::1]/", True),
        ("10.0.0.0/8", "http://10.1.2.3:8000/", True),
        ("10.1.2.3/8", "http://10.9.9.9/", True),
        ("10.1.2.3", "http://10.1.2.3/", True),
        ("10.1.2.3", "http://10.1.2.30/", False),
        ("example.com", "http://example.com/", True),
        ("example.com", "http://a.EXAMPLE.com/", True),
        ("example.com", "http://notexample.com/", False),
        (".example.com", "http://a.example.com/", True),
        ("*.example.com", "http://a.example.com/", True),
        ("10.1.*", "http://10.1.7.7/", True),
        ("*", "http://a/", True),
        ("a, b  c", "http://c/", True),
        ("host:8000", "http://host:8000/", True),
        ("host:8000", "http://host/", False),
        ("https://example.com", "http://example.com/", True),
        ("", "http://a/", False),
    ],
)
def test_no_proxy(monkeypatch, exempt, address, direct):
    monkeypatch.setenv("http_proxy", NOWHERE)
    monkeypatch.setenv("no_proxy", exempt)
    check_network_variables()
    assert (find_proxy(address) is None) is direct
    assert describe_proxy(address) == ("" if direct else " (through the proxy in http_proxy)")


MALFORMED = [
    *[
        ("http_proxy", value)
        for value in ("http://", "http://a:b", "ftp://p:1", "http://[::1", "http://a b:1", ":3128")
    ],
    *[("https_proxy", value) for value in ("http://p:0", "http://p:99999", "http://u:p#s@p:1", "p\u00e9:1", "http:/p")],
    *[("ALL_PROXY", value) for value in ("socks4://p:1", "://", "http://\udcff", "http://p\t:1")],
    *[("no_proxy", value) for value in ("10.0.0.0/99", "[::1", "a/b", "::1]", "http://[", "a:b:", "fe11::/200", "a;b")],
    *[(name, "/none") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")],
    *[(name, "/etc/passwd") for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR")],
    *[("SSL_CERT_FILE", "/tmp"), ("SSLKEYLOGFILE", "/none/x"), ("SSL_CERT_DIR", "/none:/none2")],
]


@pytest.mark.parametrize(("variable", "value"), MALFORMED)
def test_a_malformed_variable_is_named_in_one_line(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=rf"\Aenvironment {variable}: ") as caught:
        check_network_variables()
    assert "\n" not in str(caught.value) and "p#s" not in str(caught.value) and caught.value.hint


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *[("http_proxy", value) for value in ("proxy:3128", "http://u:p%40@proxy:3128/", "HTTP://proxy", "")],
        *[("ALL_PROXY", value) for value in ("socks://127.0.0.1:1080/", "socks5h://p:1", "http://[::1]:3128")],
        *[("SSL_CERT_DIR", "/none:/tmp"), ("REQUESTS_CA_BUNDLE", "/tmp"), ("SSL_CERT_FILE", "")],
    ],
)
def test_what_is_fine(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    check_network_variables()


def test_an_error_names_the_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", NOWHERE)

    async def ask():
        client = openai_client(EndpointSettings(base_url="http://models.example/v1", timeout=5, retries=0))
        with pytest.raises(Exception, match="Connection error") as caught:
            await client.models.list()
        async with BoundedClient() as plain:
            with pytest.raises(httpx.ConnectError) as direct:
                await plain.get("http://models.example/")
        return describe_error(caught.value), describe_error(direct.value)

    assert all(text.endswith("(through the proxy in HTTP_PROXY)") for text in asyncio.run(ask()))


@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
def test_child_processes_reach_this_machine_directly(monkeypatch, variable):
    assert "no_proxy" not in own_environ()
    monkeypatch.setenv(variable, NOWHERE)
    monkeypatch.setenv("NO_PROXY", "[fd00::1],.corp,fe11::/16")
    environ = own_environ()
    assert environ["no_proxy"] == environ["NO_PROXY"] == "fd00::1,.corp,localhost,127.0.0.1,::1"
    assert exempt_loopback(dict(os.environ)) == ["fe11::/16"]
    httpx.AsyncClient(mounts={}, trust_env=False)
    monkeypatch.setenv("no_proxy", environ["no_proxy"])
    httpx.Client()  # reads it all
    monkeypatch.setenv("no_proxy", "*")
    assert own_environ()["NO_PROXY"] == "*"
