import json
from datetime import UTC, datetime, timedelta

import pytest

from webgym_cli.errors import StoreError
from webgym_cli.store import metrics as module
from webgym_cli.store.metrics import Blocklist
from webgym_cli.store.run import RunDir

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock(datetime):
    """A `datetime` whose present is set by hand."""

    present = START

    @classmethod
    def now(cls, tz=None):
        return cls.present


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(module, "datetime", Clock)
    Clock.present = START
    return Clock


def lines(run):
    return [json.loads(line) for line in run.blocklist.read_text().splitlines()]


def test_a_site_is_left_out_until_its_time_is_over(run, clock):
    block_list = Blocklist(run, 12)
    block = block_list.add("https://www.news.bbc.co.uk/a?b", "train-0000-00001", "captcha")
    assert (block.site, block.reason) == ("bbc.co.uk", "captcha")
    assert block.expires_at - block.blocked_at == timedelta(hours=12)
    assert block_list.sites() == {"bbc.co.uk"}
    (line,) = lines(run)
    assert line["url"] == "https://www.news.bbc.co.uk/a?b" and line["trajectory"] == "train-0000-00001"
    for hours, expected in ((0, {"bbc.co.uk"}), (11.99, {"bbc.co.uk"}), (12, set()), (100, set())):
        clock.present = START + timedelta(hours=hours)
        assert Blocklist(run, 12).sites() == block_list.sites() == expected, hours


def test_the_latest_end_counts_and_zero_hours_block_nothing(run, clock):
    Blocklist(run, 5).add("http://example.com/", "t", "")
    clock.present = START + timedelta(hours=1)
    Blocklist(run, 1).add("http://example.com/", "u", "")
    clock.present = START + timedelta(hours=4)
    assert Blocklist(run, 1).sites() == {"example.com"}
    off = Blocklist(run, 0)
    assert off.sites() == frozenset()
    assert off.add("http://other.com/", "t", "") is None
    assert len(lines(run)) == 2


@pytest.mark.parametrize("url", ["", "about:blank", "data:text/html,x", "http://[::1"])
def test_what_has_no_site_is_not_blocked(run, url):
    assert Blocklist(run, 1).add(url, "t", "") is None
    assert not run.blocklist.exists()


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("http://10.1.2.3:8000/", "10.1.2.3:8000"),
        ("http://shop.test/", "shop.test"),
        ("http://A.Example.ORG./", "example.org"),
    ],
)
def test_sites_are_registrable_domains_or_hosts_and_a_long_reason_is_cut(run, url, site):
    block = Blocklist(run, 1).add(url, "t", "x" * 9000)
    assert (block.site, len(block.reason)) == (site, 500)


def test_lines_that_can_not_be_read_block_nothing_and_what_can_not_be_written_is_told(run, clock):
    Blocklist(run, 1).add("http://example.com/", "t", "")
    with run.blocklist.open("ab") as file:
        file.write(b'{"site": "torn.com", "url"\n{"site": "x"}\n\xff\xfe\nnull\n')
    assert Blocklist(run, 1).sites() == {"example.com"}
    run.blocklist.unlink()
    run.blocklist.mkdir()
    with pytest.raises(StoreError):
        Blocklist(RunDir(run.root), 1).add("http://example.com/", "t", "")


def test_a_trajectory_that_was_not_blocked_after_all_ends_its_own_blocks_only(run, clock):
    blocklist = Blocklist(run, 12)
    blocklist.add("http://example.com/", "t", "captcha")
    blocklist.add("http://example.com/", "u", "captcha")
    blocklist.add("http://other.com/", "t", "captcha")
    Blocklist(run, 0).lift("t")
    assert Blocklist(run, 12).sites() == {"example.com"}
    Blocklist(run, 0).lift("u")
    assert Blocklist(run, 12).sites() == frozenset()
    assert len(lines(run)) == 6 and lines(run)[-1]["reason"] == "judged again: not blocked"
    Blocklist(run, 0).lift("u")
    assert len(lines(run)) == 6
    clock.present = START + timedelta(hours=1)
    Blocklist(run, 12).add("http://example.com/", "u", "captcha")
    assert Blocklist(run, 12).sites() == {"example.com"}
