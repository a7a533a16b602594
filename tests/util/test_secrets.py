"""Keys never stand in written text, whatever form they take there."""

import base64
import html
import io
import json
import shlex
import traceback
from types import SimpleNamespace
from urllib.parse import quote, quote_plus

import httpx
import pytest

from webgym_cli.errors import SettingsError
from webgym_cli.tools.workers import Workers
from webgym_cli.util import secrets
from webgym_cli.util.files import append_lines, open_line_writer, write_atomic, write_json, write_lines
from webgym_cli.util.user_code import user_code

KEY = "sk-pr\"oj/é'1 2+3&\\4"
FORMS = {
    "raw": str,
    "JSON": json.dumps,
    "JSON with letters": lambda key: json.dumps(key, ensure_ascii=False),
    "JSON in JSON": lambda key: json.dumps(json.dumps({"key": key})),
    "repr": repr,
    "bytes": lambda key: repr(key.encode()),
    "a header that httpx refuses": lambda key: f"Illegal header value {f'Bearer {key}'.encode()!r}",
    "URL": lambda key: f"http://h/?token={quote(key)}",
    "URL, all escaped": lambda key: f"http://h/?token={quote(key, safe='')}",
    "form": lambda key: f"token={quote_plus(key)}",
    "httpx": lambda key: str(httpx.URL("http://h/", params={"token": key})),
    "HTML": lambda key: f"<b>{html.escape(key)}</b>",
    "shell": lambda key: f"curl -H {shlex.quote(key)}",
    "Basic, as the user": lambda key: base64.b64encode(f"{key}:".encode()).decode(),
    "Basic, as the password": lambda key: base64.b64encode(f"ann:{key}".encode()).decode(),
    "Basic, of another user": lambda key: base64.b64encode(f"anna:{key}".encode()).decode(),
    "Basic, of a third user": lambda key: base64.b64encode(f"ann-b:{key}x".encode()).decode(),
    "base64 of URLs": lambda key: base64.urlsafe_b64encode(f"?{key}".encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", [KEY, "sk-abcdef123456", "two words 77", "line\nfeed-99"])
def test_a_key_is_redacted_in_each_form(form, key):
    text = f"before {FORMS[form](key)} after"
    assert secrets.redact(text) == text
    secrets.add_secret(key)
    shown = secrets.redact(text)
    assert secrets.REDACTED in shown and shown.startswith("before ") and shown.endswith(" after")
    assert key not in shown and key[3:-3] not in shown and quote(key[3:-3], safe="") not in shown


@pytest.mark.parametrize("word", ["", "vllm", "EMPTY", "none", "password", "12345", "1700000000", "placeholder", "a:b"])
def test_common_words_stay(word):
    secrets.add_secret(word)
    assert secrets.redact(f'{{"policy": "{word}"}}') == f'{{"policy": "{word}"}}'


def test_an_error_has_no_key_of_its_request_however_short():
    assert secrets.redact("bad key EMPTY", "EMPTY") == "bad key [key]"


def test_no_writer_of_files_writes_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", f"  ann:{KEY}\n")
    assert secrets.read_secret("MY_TOKEN") == f"ann:{KEY}"
    write_atomic(tmp_path / "a.txt", f"x {KEY}")
    write_json(tmp_path / "b.json", {"x": [KEY], KEY: 1})
    append_lines(tmp_path / "c.jsonl", json.dumps({"x": KEY}), json.dumps({"y": f"Bearer {KEY}"}))
    write_lines(tmp_path / "d.jsonl", [{"x": KEY}])
    with open_line_writer(tmp_path / "e.jsonl") as write:
        write(json.dumps(KEY))
    written = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert len(written) == 5 and all(secrets.REDACTED in text and "oj/" not in text for text in written.values())
    assert json.loads(written["b.json"]) == {"x": ["[key]"], "[key]": 1}


def test_a_stream_shows_no_keys_not_even_in_a_traceback(capsys):
    import sys

    secrets.add_secret("sk-abcdef123456")
    stream = secrets.RedactingStream(sys.stderr)
    try:
        raise ValueError("no sk-abcdef123456")
    except ValueError:
        traceback.print_exc(file=stream)
    stream.writelines(["sk-abcdef123456\n", "x\n"])
    shown = capsys.readouterr().err
    assert "ValueError: no [key]" in shown and shown.endswith("[key]\nx\n") and "abcdef" not in shown


async def test_what_a_user_s_function_prints_is_no_data():
    async def check():
        stream.write("async ")

    data, notes = io.StringIO(), io.StringIO()
    stream = secrets.RedactingStream(data, aside=notes)
    await Workers().call(lambda: stream.write("a thread "), 5)
    await Workers().call(check, 5)
    with user_code():
        stream.write("a plugin")
    stream.write("data")
    assert (data.getvalue(), notes.getvalue()) == ("data", "a thread async a plugin")


@pytest.mark.parametrize(
    ("address", "places"),
    [
        ("http://me:pw1@h/v1", ["user"]),
        ("https://TOKEN@h/v1", ["user"]),
        ("https://TOKEN:@h/v1", ["user"]),
        ("wss://h?apiKey=abc", ["apiKey"]),
        ("wss://h/?a=1&token=abc&b=2", ["token"]),
        ("ws://h/x;y?access_token=abc#auth=def", ["access_token", "auth"]),
        ("http://h/?X-Amz-Signature=abc", ["X-Amz-Signature"]),
        ("http://h/?sig=a%2Bb", ["sig"]),
        ("http://h/?code=abc", ["code"]),
        ("http://h/?q=a1b2c3d4e5f6a7b8c9d0", ["q"]),
        ("http://h/?a1b2c3d4e5f6a7b8c9d0", ["query"]),
        ("http://h/?key=abc==", ["key"]),
        ("http://h/sk-abcdefgh1234/v1", ["path"]),
        ("http://a/v1?token=x1,http://b/v1?token=y1", ["token", "token"]),
        ("sh -c 'curl http://me:pw1@h/reset'", ["user"]),
        ("http://h/v1", []),
        ("http://me:$PASSWORD@h/v1", []),
        ("http://$LOGIN@h/v1?key=${KEY}", []),
        ("https://h/v1?api-version=2024-12-01-preview&max_tokens=100&auth=none", []),
        ("ws://h:9222/devtools/browser/6e0b3c8e-55e9-4c06-9b6f-2b54e0f0a7aa", []),
        ('ws://h?launch={"headless":true}', []),
        ("runs/a:b@c?token=abc", []),
    ],
)
def test_keys_in_addresses(address, places):
    assert [place for place, _ in secrets.find_address_keys(address)] == places


@pytest.mark.parametrize(
    ("address", "value", "expanded"),
    [
        ("http://h/?token=$MINE", " a+b/c&d== ", "http://h/?token=a%2Bb%2Fc%26d=="),
        ("http://${MINE}@h/v1", "ann:p@ss#1", "http://ann:p%40ss%231@h/v1"),
        ("http://ann:$MINE@h/v1", "50%", "http://ann:50%25@h/v1"),
        ("http://ann:$MINE@h/v1", "p%40ss-77", "http://ann:p%40ss-77@h/v1"),
        ("$MINE", "wss://h/?apiKey=abc-123-x", "wss://h/?apiKey=abc-123-x"),
    ],
)
def test_variables_of_an_address(monkeypatch, address, value, expanded):
    monkeypatch.setenv("MINE", value)
    assert secrets.expand_variables(address) == expanded
    if "@" not in value and len(value) > 5:
        assert "[key]" in secrets.redact(expanded)


@pytest.mark.parametrize("value", [None, "", "  ", "sk-a\nb", "sk-\N{GREEK SMALL LETTER ALPHA}", "sk-\x7f", "a\tb"])
def test_a_variable_that_can_not_be_sent_is_named(monkeypatch, value):
    monkeypatch.delenv("MINE", raising=False)
    if value is not None:
        monkeypatch.setenv("MINE", value)
    with pytest.raises(SettingsError, match="environment MINE: ") as caught:
        secrets.expand_variables("http://h/?token=$MINE")
    assert "\n" not in str(caught.value) and "sk-" not in str(caught.value)


def test_a_key_may_be_read_while_a_program_starts(monkeypatch):
    """The search in the names of keys reads another one, as another thread may."""
    monkeypatch.setenv("MY_KEY", "sk-abcdefgh12")
    secrets.read_secret("MY_KEY")
    pattern = SimpleNamespace(match=lambda name: secrets.read_secret(f"ANOTHER_{name}") and None)
    monkeypatch.setattr(secrets, "_READ_BY_PROGRAMS", pattern)
    environ = secrets.environ_without_keys()
    assert "MY_KEY" not in environ and "PATH" in environ


def test_the_environment_s_own_keys(monkeypatch):
    for name, value in {
        "HF_TOKEN": "hf_abcdefgh12",
        "MY_CREDENTIALS_FILE": "/home/x/file.json",
        "SSH_KEY": "/home/x/.ssh/id_rsa",
        "https_proxy": "http://bob:proxy-pw-1@proxy:3128",
    }.items():
        monkeypatch.setenv(name, value)
    secrets.add_environment()
    text = "hf_abcdefgh12 /home/x/file.json /home/x/.ssh/id_rsa bob:proxy-pw-1@ proxy-pw-1"
    assert secrets.redact(text) == "[key] /home/x/file.json /home/x/.ssh/id_rsa [key]@ [key]"
