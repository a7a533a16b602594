"""Recorded requests, without a browser."""

import json
import stat
from contextlib import AsyncExitStack

from webgym_cli.environments.browser.har import finish_har, record_har
from webgym_cli.environments.browser.options import SessionOptions

OPTIONS = SessionOptions(width=100, height=100)


async def test_the_recording_is_finished_after_the_context(tmp_path):
    async with AsyncExitStack() as after:
        arguments = record_har(OPTIONS, tmp_path / "a.har", after).context_arguments
        arguments["record_har_path"].write_text('{"log": {"entries": []}}')
    assert [file.name for file in tmp_path.iterdir()] == ["a.har"]
    assert record_har(OPTIONS, None, after) is OPTIONS


def test_logins_are_left_out_and_only_the_owner_may_read_it(tmp_path):
    file = tmp_path / "har" / "a.har"
    arguments = record_har(OPTIONS, file, AsyncExitStack()).context_arguments
    headers = [{"name": name, "value": "x"} for name in ("Accept", "Cookie", "Authorization", "Set-Cookie")]
    message = {"headers": headers, "cookies": [{"name": "s"}]}
    entry = {"request": message, "response": message}
    arguments["record_har_path"].write_text(json.dumps({"log": {"entries": [entry]}}))
    finish_har(file)
    (entry,) = json.loads(file.read_text())["log"]["entries"]
    for recorded in (entry["request"], entry["response"]):
        assert ([one["name"] for one in recorded["headers"]], recorded["cookies"]) == (["Accept"], [])
    assert (stat.S_IMODE(file.stat().st_mode), [*file.parent.iterdir()]) == (0o600, [file])


def test_looks_of_a_page_are_not_recorded_and_a_broken_browser_leaves_none(tmp_path):
    arguments = record_har(OPTIONS, tmp_path / "a.har", AsyncExitStack()).context_arguments
    wanted = arguments["record_har_url_filter"]
    assert all(map(wanted.search, ("http://a/", "http://a/x.json?img=b.png", "http://a/css", "http://a/p.php#x.css")))
    assert not any(map(wanted.search, ("http://a/b.png", "http://a/b.CSS?1".lower(), "data:text/html,x")))
    finish_har(tmp_path / "b.har")
    assert not [*tmp_path.glob("b*")]
