"""The board, drawn for terminals of many sizes."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from tests.cli.made_rollout import plain, rollout
from webgym_cli.cli.live_view import LiveView, shorten_url

NASTY = "[red]x[/bold]\x1b[2J\u202e\n\udcff"
"""Markup, an escape, a change of direction, a new line and half a character."""


def drawn(picture, width=80, height=24, **options):
    """Return the lines that a terminal of this size would show."""
    file = io.StringIO()
    Console(file=file, width=width, height=height, force_terminal=True, **options).print(picture)
    return file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20), (100, 40), (200, 60)])
@pytest.mark.parametrize("failed", [0, 30])
def test_the_board_fits_the_terminal(width, height, failed):
    lines = plain(drawn(LiveView(rollout(running=100, failed=failed).snapshot()), width, height))
    assert height - 2 <= len(lines) < height
    assert max(map(len, lines)) <= width
    assert re.match(r"train-0000-000\d\d +3/20 ", lines[-1])


def test_what_the_board_tells_at_80_columns():
    monitor = rollout()
    lines = plain(drawn(LiveView(monitor.snapshot())))
    text = "\n".join(lines)
    assert re.match(r"train 0  vllm  running  10/100  ━", lines[0])
    assert lines[1].startswith("success 30.0% (10.8-60.3%) of 10  ") and "ETA " in lines[1]
    assert lines[2].rstrip() == "30 of 64 slots busy  owed 548  judge 3  cut 1"
    assert re.match(r"[a-z_]+ \d+  [a-z_]+ \d+  ", lines[3])
    assert re.search(r"^policy +\d+ ms +\d+ ms +30 +1 *$", text, re.MULTILINE)
    assert re.search(r"^train-0000-00000 +3/20 +policy +\d+ ms +wiki-lookup-0 +a\.com/b", text, re.MULTILINE)
    monitor.stages.servers = lambda: {"http://a/v1": {"open": 0}, "http://b/v1": {"open": 1}}
    assert "judge 3  1 of 2 policy servers left alone" in plain(drawn(LiveView(monitor.snapshot())))[2]


def test_fewer_lines_leave_room_for_the_bars():
    board = LiveView(rollout(running=100).snapshot())
    assert len(drawn(board)) - len(drawn(replace(board, below=3))) == 3
    lines = plain(drawn(LiveView({**rollout(running=0, failed=0, total=10).snapshot(), "state": "finished"})))
    assert "finished" in lines[0] and "episode" not in "".join(lines)


@pytest.mark.parametrize("markup", [True, False])
def test_what_pages_say_is_only_text(markup):
    monitor = rollout(running=1, failed=0, task=NASTY[:-1], url=f"https://a.com/{NASTY}")
    text = "\n".join(drawn(LiveView(monitor.snapshot()), 200, color_system=None, markup=markup))
    assert "[red]x[/bold]·[2J" in text and not {"\x1b", "\u202e", "\udcff"} & set(text)


def test_addresses_in_short():
    assert shorten_url("https://www.a.com/b/") == "a.com/b"
    assert shorten_url("about:blank") == "about:blank"
