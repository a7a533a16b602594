import json

import pytest

from tests.tables import each
from webgym_cli.util.text import (
    escape_control,
    first_line,
    format_count,
    format_duration,
    hide_passwords,
    replace_control,
    split_command,
)


@each(
    ("text", "hidden"),
    [
        ("http://user:PW@host:1/v1", "http://host:1/v1"),
        ("http://a:P@W@host/v1,https://b:PW@other/v1?q=a@b", "http://host/v1,https://other/v1?q=a@b"),
        ("http://PW@host", "http://host"),
        ("HTTP://u:PW@HOST", "HTTP://HOST"),
        ("can't reach http://u:PW@host/x today", "can't reach http://host/x today"),
        ("http://host/a@b", "http://host/a@b"),
        ("mail to me@host.example", "mail to me@host.example"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ],
)
def test_passwords_of_urls_are_hidden(text, hidden):
    assert hide_passwords(text) == hidden
    assert "PW" not in json.dumps(hide_passwords({"rollout": {"policy": [text, 1, None]}}))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ImportError("\n  torchvision is missing\nsee"), "torchvision is missing"),
        (OSError(), "OSError"),
        (OSError("Error:\nno url\nx"), "Error: no url"),
    ],
)
def test_an_error_is_told_in_a_line_that_says_something(error, line):
    assert first_line(error) == line


@each(
    ("command", "words"),
    [
        ("cut -d '|' -f 1", ["cut", "-d", "|", "-f", "1"]),
        ('sh -c "a | b && c > d"', ["sh", "-c", "a | b && c > d"]),
        (r"grep \| a\ b --x=a>b", ["grep", "|", "a b", "--x=a>b"]),
        ("curl http://h/?a=1&b=2 a;b x|y -> >=1 <a>", ["curl", "http://h/?a=1&b=2", "a;b", "x|y", "->", ">=1", "<a>"]),
        (r"""find 'a; b' \; "a">b c ;""", ["find", "a; b", ";", "a>b", "c", ";"]),
        ("list | sort", None),
        ("make && list", None),
        ("list > out", None),
        ("make; list", None),
        ("list &", None),
        ("list 2>/dev/null", None),
        ("list 2>&1", None),
        ("list &>out", None),
        ("list <in", None),
    ],
)
def test_what_only_a_shell_understands_is_no_command(command, words):
    if words:
        assert split_command(command) == words
        return
    with pytest.raises(ValueError, match="needs a shell"):
        split_command(command)


def test_control_characters_are_replaced():
    nasty = "a\x00b\x1b[2J\x9b1m\u202ec\td\ne\r"
    assert replace_control(nasty) == "a·b·[2J·1m\u202ec\td\ne·"
    assert replace_control("plain ä 漢") == "plain ä 漢"
    assert escape_control(nasty) == "a·b·[2J·1m·c·d·e·"
    assert escape_control("日本語 naïve 🙂\udcff") == "日本語 naïve 🙂·"


@pytest.mark.parametrize(("count", "text"), [(0, "0 steps"), (1, "1 step"), (1200, "1,200 steps")])
def test_a_count_agrees_with_its_noun(count, text):
    assert format_count(count, "step") == text


@each(
    ("seconds", "text"),
    [
        *((None, ""), (0.0123, "12 ms"), (1.239, "1.24 s"), (31.2, "31 s"), (99.9, "100 s"), (119, "119 s")),
        *((150, "2.5 min"), (245, "4.1 min"), (7200, "2.0 h"), (9e6, "2,500.0 h")),
    ],
)
def test_durations_in_short(seconds, text):
    assert format_duration(seconds) == text
