"""Each benchmark from a file in its published form to a record: converted, checked, run and judged, in a real browser.

The files in `benchmarks/` were made for these tests, on a small shop: a policy that knows one of its lamps opens its
page and gives its price, says of another that there is none, and waits for the third until its steps end.
"""

import asyncio
import json
import re
from pathlib import Path

import pytest
from aiohttp import web

from tests.environments.odd_server import OddServer
from tests.environments.visits import HASTY
from tests.executable import needs_chromium
from tests.forked import webgym
from webgym_cli.rewards.judge.scripted_server import build_completion
from webgym_cli.util.local_server import LocalServer

pytestmark = pytest.mark.browser

FILES = Path(__file__).with_name("benchmarks")
LINKS = '<a href="/">Shop</a> <a href="/desk">Desk lamp</a> <a href="/floor">Floor lamp</a>'
PAGES = {"/": "Lamp shop", "/desk": "Desk lamp", "/floor": "Floor lamp"}
YES, NO = "success", "unsolved"
# File, options of the conversion, protocol, results of the tasks by the scripted judge's rules, and their bands.
CASES = [
    ("online-mind2web.json", (), "webjudge", (NO, YES, YES), "medium easy hard"),
    ("deepshop.jsonl", (), "webgym", (YES, NO, NO), "easy hard medium"),
    ("webtailbench.tsv", ("start",), "agentrewardbench", (YES, NO), "easy easy"),
    ("odysseys.json", (), "webgym", (YES, NO), "hard easy"),
    ("assistantbench.jsonl", ("start",), "webgym", (YES, NO, YES), "hard medium easy"),
    ("webgym.jsonl", (), "webgym", (YES, NO, NO), "easy easy medium"),
    ("webarena.json", ("shopping",), "", (YES, NO, YES, YES), "easy easy easy easy"),
    ("webarena-lite.json", ("shopping",), "", (YES, NO), "easy easy"),
]
# What each protocol decides on the episodes of `webvoyager.jsonl`.
PROTOCOLS = {
    "webvoyager": (YES, YES, NO),
    "webgym": (YES, NO, NO),
    "webjudge": (YES, NO, YES),  # it sees no answer, and the second episode has no action
    "agenttrek": (YES, YES, YES),
    "agentrewardbench": (YES, YES, NO),
}


class ScriptedPolicy(LocalServer):
    """A policy server that acts by the lamp of the task."""

    def __init__(self):
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", self._complete)
        super().__init__(app, 0)

    async def _complete(self, request):
        body = await request.json()
        texts = [json.dumps(message["content"]) for message in body["messages"]]
        return web.json_response(build_completion(body, self._act(texts[0] + texts[1], texts[-1])))

    def _act(self, task, page):
        if "Wait for" in task:
            return 'do(action="Wait", argument="0.1")'
        if "Glass lamp" in task:
            return 'exit(message="There is none.")'
        if "<h1> Desk lamp" in page:
            return 'exit(message="The \\"Desk lamp\\" costs 12 EUR.")'
        (number,) = re.search(r'id=\\"(\d+)\\"[^>]*> *Desk lamp', page).groups()
        return f'do(action="Click", element="{number}")'


@pytest.fixture(scope="module")
async def servers():
    needs_chromium()
    async with OddServer() as site, ScriptedPolicy() as policy:
        site.pages |= {path: f"<title>{name}</title><h1>{name}</h1>{LINKS}" for path, name in PAGES.items()}
        yield site.url, f"http://{policy.address}/v1"


def convert(folder, site, name, options):
    """Return the checked task file of a benchmark's file."""
    (folder / name).write_text((FILES / name).read_text().replace("http://SITE", site))
    if not name.startswith("webgym"):  # its own files are task files
        form = re.sub(r"(-lite|-verified)?\.\w+$", "", name)
        given = [f"--site={option}={site}" for option in options]
        webgym("tasks", "convert", name, "--format", form, *given, "-o", "tasks.jsonl", cwd=folder)
        name = "tasks.jsonl"
    webgym("tasks", "check", name, cwd=folder)
    return name


def evaluate(folder, servers, file, protocol, *more, code=0):
    """Evaluate the scripted policy and return the newest record."""
    site, policy = servers
    settings = [*HASTY, f"sites.shopping.url={site}", f"sites.wikipedia.url={site}", "serve.served_model_name=scripted"]
    settings += ["context_config.prompt_version=webrl", "rollout.max_attempts=1", *more]
    judge = ("--protocol", protocol, "-s", "judge.base_url=scripted") if protocol else ()
    limits = ("--repeats", "1", "--max-steps", "3")
    given = [word for setting in settings for word in ("-s", setting)]
    webgym("eval", policy, "-b", file, *limits, *given, *judge, "-o", "run", cwd=folder, code=code)
    records = sorted((folder / "run").glob("evaluation-*.json"), key=lambda record: record.stat().st_mtime_ns)
    return json.loads(records[-1].read_text()) if records else None


def results_of(record, field="results"):
    """Return the results of the tasks in the order of their ids, or another field's values."""
    values = [task[field] for task in sorted(record["tasks"], key=lambda task: task["task"])]
    return tuple(value[0] for value in values) if field == "results" else " ".join(values)


@pytest.mark.parametrize(("name", "options", "protocol", "results", "bands"), CASES)
async def test_a_published_file_becomes_a_record(tmp_path, servers, name, options, protocol, results, bands):
    file = await asyncio.to_thread(convert, tmp_path, servers[0], name, options)
    record = await asyncio.to_thread(evaluate, tmp_path, servers, file, protocol)
    assert (results_of(record), results_of(record, "band")) == (results, bands)
    assert record["judged"] == (len(results) if protocol else 0)
    assert protocol in ("", (record["conditions"]["judge"] or {}).get("protocol"))


async def test_each_protocol_judges_the_same_episodes(tmp_path, servers):
    file = await asyncio.to_thread(convert, tmp_path, servers[0], "webvoyager.jsonl", ())
    for number, (protocol, results) in enumerate(PROTOCOLS.items(), 1):
        record = await asyncio.to_thread(evaluate, tmp_path, servers, file, protocol)
        assert (protocol, results_of(record)) == (protocol, results)
        assert len(list((tmp_path / "run").glob("evaluation-*.json"))) == number
        assert record["spent"]["steps"] == 6


async def test_the_verdicts_of_another_package_become_a_record(tmp_path, servers):
    file = await asyncio.to_thread(convert, tmp_path, servers[0], "webarena-verified.json", ("wikipedia",))
    given = ("browser.record_har=true",)
    assert await asyncio.to_thread(evaluate, tmp_path, servers, file, "", *given, code=1) is None
    webgym("export-sharegpt", "run", "--split", "test", "--format", "webarena-verified", "-o", "out", cwd=tmp_path)
    sums = dict.fromkeys(("webarena_verified_evaluator_checksum", "webarena_verified_data_checksum"), "0" * 64)
    for version, status in (("1.2.3", "success"), ("1.3.0", "failure")):
        for task, result in (("0", status), ("1", "failure")):
            given_result = {"status": result, "score": float(result == "success"), "webarena_verified_version": version}
            (tmp_path / "out" / "1" / task / "eval_result.json").write_text(json.dumps(given_result | sums))
        webgym("score", "run", "--verdicts", "out", cwd=tmp_path)
        record = await asyncio.to_thread(evaluate, tmp_path, servers, file, "", *given)
        assert results_of(record) == ((YES if status == "success" else NO), NO)
        assert list(record["conditions"]["scoring"]["checks"]) == ["webarena-verified"]
        assert record["conditions"]["versions"]["webarena-verified"] == version
    first, second = sorted((tmp_path / "run").glob("evaluation-*.json"))
    assert "checks" in webgym("compare", first, second, cwd=tmp_path, code=2).stderr
    webgym("compare", first, second, "--across", cwd=tmp_path)


def test_miniwob_needs_no_file(tmp_path):
    given = ("-b", "miniwob:click-test,focus-text", "--repeats", "1", "-o", "run")
    webgym("eval", "oracle", *given, "-s", "context_config.interaction_mode=set_of_marks", cwd=tmp_path)
    (record,) = (tmp_path / "run").glob("evaluation-*.json")
    assert results_of(json.loads(record.read_text())) == (YES, YES)
