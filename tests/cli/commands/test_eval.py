"""`webgym eval` as people meet it: experts on generated questions, which need neither browser nor server."""

import asyncio
import json
import signal
import time
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import chain

import pytest
from aiohttp import web

from tests.agent.policy_host import Host
from tests.cli.runs import model
from tests.executable import Command
from tests.forked import webgym
from tests.records.builders import published, store_images
from tests.rewards.cases import ANSWER, GARBAGE, INSTRUCTION, RUBRIC, answered
from webgym_cli.cli.commands import eval_
from webgym_cli.cli.options import PaidOptions, format_overrides
from webgym_cli.compare.study import list_differences
from webgym_cli.config.load import load
from webgym_cli.errors import UsageError, WebGymError
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.evaluation import Benchmark, evaluate, plan_evaluation
from webgym_cli.loop.scoring import score
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import FinalState
from webgym_cli.rewards.check_scorer import CheckScorer
from webgym_cli.rewards.selection import ScoringQuery, plan_scoring
from webgym_cli.scoring.check import CHECKS, CheckContext, TaskCheck, find_check
from webgym_cli.store.buffer import append, read_judgements
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.tasks.check import EDITIONS
from webgym_cli.tools.workers import Workers
from webgym_cli.util.files import read_json, write_lines

QUESTIONS = ("eval", "oracle", "-b", "arithmetic:test", "-c", "arithmetic")


def read(folder):
    (file,) = folder.glob("evaluation-*.json")
    return file.read_bytes()


def without_times(record):
    loaded = json.loads(record)
    loaded["spent"] = {name: of for name, of in loaded["spent"].items() if "seconds" not in name}
    return loaded


def test_a_killed_evaluation_goes_on_to_the_same_record(tmp_path):
    arguments = [*QUESTIONS, "--episodes", "12", "--repeats", "3", "-s", "rollout.concurrency=1", "-o", "killed"]
    part = RunDir(tmp_path / "killed").part(Split.TEST, 0)
    command = Command(tmp_path, *arguments)
    command.until(lambda: part.is_file() and part.read_bytes().count(b"\n") >= 6)
    command.send(signal.SIGKILL)
    assert not list((tmp_path / "killed").glob("evaluation-*"))
    assert 6 <= part.read_bytes().count(b"\n") < 36

    webgym("resume", "killed", cwd=tmp_path)
    record = read(tmp_path / "killed")
    assert part.read_bytes().count(b"\n") == 36
    (file,) = (tmp_path / "killed").glob("evaluation-*.json")
    file.unlink()  # as if it had been killed before the rename
    webgym(*arguments, cwd=tmp_path)
    assert read(tmp_path / "killed") == record

    webgym(*arguments[:-1], "whole", cwd=tmp_path)
    assert without_times(read(tmp_path / "whole")) == without_times(record)
    for other, named in (("killed", "another"), ("nosuch", "nosuch")):
        assert named in webgym("compare", "killed", other, cwd=tmp_path, code=2).stderr
    compared = webgym("compare", "killed", "whole", "--json", cwd=tmp_path)
    assert json.loads(compared.stdout)["others"][0]["overall"]["counts"]["kept"] == 12


class Priced(Host):
    """Answers each question at once, in 100 tokens."""

    def _completion(self):
        message = {"role": "assistant", "content": "7"}
        usage = {"prompt_tokens": 90, "completion_tokens": 10}
        return web.json_response({"model": "policy", "choices": [{"message": message}], "usage": usage})


async def test_an_evaluation_ends_at_its_limit_of_cost_and_goes_on_with_a_larger_one(tmp_path):
    call = partial(asyncio.to_thread, webgym, cwd=tmp_path)
    host = Priced()
    await host.start()
    prices = 'cost.prices={"policy": {"prompt": 10000, "completion": 10000}}'  # 1 an episode
    words = ("-b", "arithmetic:test", "--episodes", "2", "--repeats", "3", "-s", prices, "-o", "own")
    ended = await call("eval", host.url, *words, "--max-cost", "3.5", code=86)
    assert "3.0000 of the cost of 3.5 is spent" in ended.stderr
    assert f"next: webgym resume {tmp_path}/own --max-cost MORE" in ended.stderr
    assert host.received == 3
    assert not list((tmp_path / "own").glob("evaluation-*"))
    await call("resume", "own", "--max-cost", "4.5", code=86)
    assert host.received == 4
    await call("resume", "own", "--max-cost", "100")
    record = json.loads(read(tmp_path / "own"))
    assert (host.received, record["episodes"]) == (6, 6)
    assert (record["spent"]["cost"], record["spent"]["cost_per_step"]) == (6, 1)
    assert record["spent"]["cpu_seconds"] > 0
    shown = await call("status", "own", "--cost")
    (line,) = (line.split("\t") for line in shown.stdout.splitlines() if line.startswith("cost\tcost"))
    assert line[2:5] == ["6.0", "1.0", "1.0"]
    await host.stop()


def test_a_folder_is_of_its_conditions_and_its_record_stays(tmp_path):
    for _ in range(2):
        webgym(*QUESTIONS, "--episodes", "2", "--repeats", "1", cwd=tmp_path)
    (folder,) = (tmp_path / "evaluations").iterdir()
    before = read(folder)
    webgym(*QUESTIONS, "--episodes", "2", "--repeats", "1", "-s", "seed=1", cwd=tmp_path)
    assert len(list((tmp_path / "evaluations").iterdir())) == 2
    webgym(*QUESTIONS, "--episodes", "2", "-s", "agent.max_turns=9", "-o", folder, cwd=tmp_path, code=2)
    (folder / "conditions.json").rename(kept := tmp_path / "kept")
    (folder / "conditions.json").write_text("[1]")
    damaged = webgym(*QUESTIONS, "--episodes", "2", "--repeats", "1", "-o", folder, cwd=tmp_path, code=1)
    assert "conditions.json" in damaged.stderr
    kept.replace(folder / "conditions.json")
    assert read(folder) == before
    cold = ("-s", "policy_config.temperature=0.5")
    refused = webgym(*QUESTIONS, "--episodes", "2", *cold, "-o", folder, cwd=tmp_path, code=2)
    assert "decoding.temperature" in refused.stderr
    planned = webgym(*QUESTIONS, "--episodes", "3", "--dry-run", "--json", "-o", "new", cwd=tmp_path)
    plan = json.loads(planned.stdout)
    assert (plan["episodes"], plan["owed"], plan["written"]) == (9, 9, False)
    assert not (tmp_path / "new").exists()


def test_a_judge_that_judged_nothing_is_told_from_one_that_did(tmp_path):
    judge = ("-s", "judge.base_url=scripted")
    webgym(*QUESTIONS, "--episodes", "2", "--repeats", "1", *judge, "-o", "own", cwd=tmp_path)
    record = json.loads(read(tmp_path / "own"))
    assert (record["judged"], record["valid"]) == (0, 2)  # arithmetic is scored by its reward function


def test_a_mended_check_leads_to_a_second_record(tmp_path):
    def define(text):
        check = "from webgym_cli.scoring import check\n\n\n@check('mine')\ndef mine(context):\n    return "
        (tmp_path / "mine.py").write_text(f"{check}{text} in context.answer\n")

    facts = {"environment": "tools", "instruction": "5 + 6?", "reference_answer": "11", "expression": "5+6"}
    write_lines(tmp_path / "tasks.jsonl", [{"id": "q", "check": "mine", **facts}])
    define("'7'")
    given = ("-c", "arithmetic", "-s", "plugins=[mine.py]", "--repeats", "1", "-o", "own")
    webgym("eval", "oracle", "-b", "tasks.jsonl", *given, cwd=tmp_path)
    before = read(tmp_path / "own")
    define("'1'")
    scored = webgym("score", "own", "--check", cwd=tmp_path)
    after = f"webgym eval oracle -b {tmp_path}/tasks.jsonl -o own"
    assert f"next: {after}\n" in scored.stderr
    assert read(tmp_path / "own") == before
    webgym(*after.split()[1:], cwd=tmp_path)
    records = sorted((tmp_path / "own").glob("evaluation-*.json"))
    assert records.pop().read_bytes() == before
    assert [json.loads(before)["successes"], *(read_json(record)["successes"] for record in records)] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("oracle", "-b", "arithmetic:test", "-s", "context_config.prompt_version=nope"), "prompt_version"),
        (("oracle", "-b", "tasks.jsonl", "-s", "browser.executable=/bin/true"), "expert"),
        (("oracle", "-b", "missing.jsonl"), "missing.jsonl"),
        (("empty", "-b", "arithmetic:test"), "config.json"),
        (("", "-b", "arithmetic:test"), "''"),
        *(((*QUESTIONS[1:], "--subset", name), name) for name in ("no-file", "no-byte", "blank", "binary")),
    ],
)
def test_what_is_refused_leaves_no_run(tmp_path, arguments, named):
    (tmp_path / "empty").mkdir()
    for name, content in {"no-byte": b"", "blank": b" \n", "binary": b"\xff\xfe1"}.items():
        (tmp_path / name).write_bytes(content)
    write_tasks(tmp_path, "right")
    result = webgym("eval", *arguments, "-o", "new", cwd=tmp_path, code=2)
    assert not (tmp_path / "new").exists()
    assert named in result.stderr and "tasks.train" not in result.stderr


def write_tasks(folder, *names, **given):
    file = folder / "tasks.jsonl"
    given |= {"instruction": INSTRUCTION, "environment": "web", "rubric": RUBRIC}
    write_lines(file, ({"id": name, "start_url": f"http://{name}.test/", **given} for name in names))
    return file


class World:
    """Two tasks of the open web whose episodes are stored and not judged."""

    def __init__(self, folder, **given):
        self.source, self.run = str(write_tasks(folder, "right", "wrong", **given)), RunDir(folder / "eval")
        self.answers = {"right": ANSWER, "wrong": "It was painted by Rembrandt in 1632."}

    def settings(self, server, **judge):
        given = {"base_url": server.base_url, "retries": 0, **judge} if server else {}
        keys = (f"judge.{name}={value}" for name, value in given.items())
        return load(
            overrides=["rollout.policy=oracle", "browser.executable=/bin/true", "log_config.tracking=disabled", *keys]
        )

    async def check(self, trajectory):
        score = await find_check(trajectory.task).score(Workers(), CheckContext(trajectory), 9)
        outcome = trajectory.outcome.model_copy(update={"reward": score.value, "scores": (score,)})
        return trajectory.model_copy(update={"outcome": outcome, "final": FinalState(url="http://a.test")})

    async def evaluate(self, server, **judge):
        settings = self.settings(server, **judge)
        plan = plan_evaluation(self.run, settings, Benchmark(self.source))
        create_or_open(self.run, settings)
        if not self.run.conditions.exists():
            for episode in plan.episodes:
                given = {"id": episode.id, "episode": episode.id, "split": Split.TEST, "task": episode.task}
                trajectory = answered(answer=self.answers[episode.task.id], policy="oracle", seed=episode.seed, **given)
                store_images(self.run, trajectory)
                append(self.run, trajectory if not episode.task.check else await self.check(trajectory))
        async with StageContext(self.run, settings, self.run.logs, lambda event: None) as context:
            return await evaluate(context, plan)


@pytest.fixture(autouse=True)
def chromium(monkeypatch):
    monkeypatch.setattr("webgym_cli.loop.conditions.chromium_version", lambda path: "1")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def test_episodes_without_a_score_wait_for_a_judge_in_the_same_folder(world, server):
    with pytest.raises(WebGymError) as refused:
        await world.evaluate(None)
    assert "judge.base_url" in refused.value.hint
    record = await world.evaluate(server)
    assert (record["successes"], record["valid"]) == (1, 2)
    assert record["conditions"]["judge"]["protocol"] == "webgym"
    assert (record["judged"], record["episodes"]) == (2, 2)


async def test_another_judge_writes_a_second_record_of_the_same_episodes(world, server):
    await world.evaluate(server)
    (first,) = world.run.root.glob("evaluation-*.json")
    before, count = first.read_bytes(), len(server.requests)
    await world.evaluate(server)
    assert (first.read_bytes(), len(server.requests)) == (before, count)
    record = await world.evaluate(server, check_claims="false", image_detail="high")
    assert (record["successes"], record["conditions"]["judge"]["image_detail"]) == (1, "high")
    assert len(server.requests) > count
    assert len(list(world.run.root.glob("evaluation-*.json"))) == 2
    assert first.read_bytes() == before


async def test_an_unreadable_verdict_is_a_failure_and_is_not_asked_for_again(world, server, monkeypatch):
    server.script(GARBAGE, job="claims")
    record = await world.evaluate(server)
    assert (record["valid"], record["failures"]) == (1, {"judge_failed": 1})
    (file,) = world.run.root.glob("evaluation-*.json")
    before, count = file.read_bytes(), len(server.requests)
    # as if it had been killed before its last episode ended
    file.unlink()
    part = world.run.part(Split.TEST, 0)
    *stored, last = part.read_text().splitlines(keepends=True)
    part.write_text("".join(stored))
    waiting = []

    async def execute_rollout(context, plan):
        waiting.extend(plan.unjudged)
        part.write_text("".join([*stored, last]))

    monkeypatch.setattr("webgym_cli.loop.rollout_setup.check_policy", lambda *given: None)
    monkeypatch.setattr("webgym_cli.loop.evaluation.execute_rollout", execute_rollout)
    await world.evaluate(server)
    assert (waiting, len(server.requests), file.read_bytes()) == ([], count, before)


@pytest.mark.parametrize("again", [False, True], ids=["by eval", "by score --check first"])
async def test_a_changed_check_writes_a_second_record_of_the_same_episodes(tmp_path, monkeypatch, again):
    def define(digest, function):
        monkeypatch.setitem(CHECKS.registered, "mine", replace(TaskCheck.of(function, "mine"), digest=digest))

    world = World(tmp_path, check="mine")
    define("d1", lambda context: context.answer == ANSWER)
    record = await world.evaluate(None)
    (first,) = world.run.root.glob("evaluation-*.json")
    before = first.read_bytes()
    assert (first.stem, record["successes"]) == ("evaluation-environment", 1)
    assert record["conditions"]["scoring"]["checks"] == {"mine": "d1"}

    define("d2", lambda context: time.sleep(0.01) or bool(context.answer))
    if again:
        settings = world.settings(None)
        async with StageContext(world.run, settings, world.run.logs, lambda event: None) as context:
            await score(context, plan_scoring(world.run, CheckScorer(settings), ScoringQuery()))
        define("d3", lambda context: False)  # the newest judgement is of no interest to the record of `d2`
    record = await world.evaluate(None)
    assert (record["successes"], record["valid"]) == (0 if again else 2, 2)
    judgements = chain.from_iterable(read_judgements(world.run, Split.TEST, 0).values())
    assert sum(one.seconds for one in judgements) >= 0.02
    assert record["spent"]["judge_seconds"] == 0
    assert len(list(world.run.root.glob("evaluation-*.json"))) == 2
    define("d2", lambda context: bool(context.answer))
    assert (await world.evaluate(None))["successes"] == 2
    define("d4", lambda context: context.page.url)
    with pytest.raises(WebGymError, match="2 episodes can't be scored again"):
        await world.evaluate(None)
    define("d1", lambda context: False)
    assert (await world.evaluate(None))["successes"] == 1
    assert first.read_bytes() == before


def test_tasks_are_told_apart_by_their_digest(tmp_path, monkeypatch):
    settings = World(tmp_path).settings(None)
    both = plan_evaluation(RunDir(tmp_path / "a"), settings, Benchmark(str(write_tasks(tmp_path, "right", "wrong"))))
    assert "edition" not in both.conditions["tasks"]
    monkeypatch.setitem(EDITIONS, both.conditions["tasks"]["digest"], "made by us")
    (tmp_path / "other").mkdir()
    turned = Benchmark(str(write_tasks(tmp_path / "other", "wrong", "right")))
    digest = both.conditions["tasks"]["digest"]
    known = plan_evaluation(RunDir(tmp_path / "b"), settings, turned).conditions["tasks"]
    assert (known["digest"], known["edition"]) == (digest, "made by us")
    part = Benchmark(turned.source, subset={"wrong"})
    one = plan_evaluation(RunDir(tmp_path / "c"), settings, part)
    assert {episode.task.id for episode in one.episodes} == {"wrong"}
    assert one.conditions["tasks"]["digest"] != digest
    with pytest.raises(UsageError, match="digest"):
        plan_evaluation(RunDir(tmp_path / "d"), settings, Benchmark(turned.source, digest="0123"))
    with pytest.raises(UsageError, match="nothing"):
        plan_evaluation(RunDir(tmp_path / "d"), settings, Benchmark(turned.source, subset={"nothing"}))


def conditions(folder, *settings):
    """Return the conditions of an evaluation of a served policy on one task of the site `shop`."""
    benchmark = Benchmark(str(write_tasks(folder, "right", site="shop")))
    usual = ("rollout.policy=http://127.0.0.1:1/v1", "browser.executable=/bin/true", "sites.shop.url=http://a.test")
    return plan_evaluation(RunDir(folder / "a"), load(overrides=[*usual, *settings]), benchmark).conditions


@pytest.mark.parametrize(
    "changed",
    [
        *("rollout.agent=./mine", "rollout.max_attempts=1", 'browser.args=["--lang=de"]', "agent.tool_timeout=5"),
        *("browser.navigation_timeout=5", "browser.screenshots=false", "agent.reward_timeout=5"),
        "sites.shop.isolation=tenant",
    ],
)
def test_what_changes_a_number_is_in_the_conditions(tmp_path, changed):
    other = conditions(tmp_path, changed)
    setting = changed.partition("=")[0].partition(".")[2]
    (difference,) = list_differences(conditions(tmp_path), other)
    assert difference.partition(":")[0].endswith(f".{setting}")
    assert list_differences(other, json.loads(json.dumps(other))) == []


def test_prompt_and_playwright_are_in_the_conditions_and_unknown_in_older_ones(tmp_path):
    usual, other = conditions(tmp_path), conditions(tmp_path, "context_config.prompt_version=vanilla")
    changed = [line.partition(":")[0] for line in list_differences(usual, other)]
    assert sorted(changed) == ["prompt.digest", "prompt.prompt_version"]
    older = {**usual, "prompt": {**usual["prompt"]}, "versions": {**usual["versions"]}}
    assert older["versions"].pop("playwright") == version("playwright")
    del older["prompt"]["digest"]
    assert list_differences(older, usual) == list_differences(usual, older) == []


@pytest.mark.parametrize(
    "text",
    [
        'OWN = make_action_set(f"{time.time_ns()}", lambda response: None, str)',
        'OWN = replace(make_action_set("", str, str), template=None, render=lambda *given: 1 / 0)',
        'OWN = replace(make_action_set("", str, str), template=None, render=partial(lambda *given: 1 / 0))',
    ],
)
def test_an_action_set_of_ones_own_is_in_the_conditions_by_its_source(tmp_path, text):
    def describe(name, more=""):
        file = tmp_path / f"{name}.py"
        imports = "import time\nfrom dataclasses import replace\nfrom functools import partial\n"
        own = "from webgym_cli.agent.actions.action_sets import make_action_set\n"
        file.write_text(f"{imports}{own}{text}{more}\n")
        return conditions(tmp_path, f"context_config.prompt_version={file}:OWN")["prompt"]["digest"]

    one, again, other = describe("one"), describe("again"), describe("other", more="  # changed")
    assert one == again != other


def test_a_reward_function_of_ones_own_is_in_the_conditions_by_its_source(tmp_path):
    def describe(text):
        (tmp_path / "mine.py").write_text(f"from webgym_cli.scoring import reward\n{text}\n")
        arguments = (*QUESTIONS, "-s", f"agent.reward_name={tmp_path}/mine.py:mine", "--dry-run", "--json", "-o", "new")
        return json.loads(webgym(*arguments, cwd=tmp_path).stdout)["scoring"]

    one, two = (describe(f"@reward\ndef mine(final_response):\n    return {value}") for value in (0, 1))
    assert one["reward_digest"] != two["reward_digest"]
    assert "reward_digest" not in json.loads(webgym(*QUESTIONS, "-n", "--json", cwd=tmp_path).stdout)["scoring"]


def test_the_time_zone_of_a_local_browser_is_in_the_conditions(tmp_path, monkeypatch):
    def describe(zone, *more):
        monkeypatch.setattr(time, "tzname", (zone, zone))
        return conditions(tmp_path, *more)

    (difference,) = list_differences(describe("UTC"), describe("CET"))
    assert difference.startswith("browser.time_zone: None, not 'CET'")
    remote = 'browser.cdp_urls=["http://far.test:9222"]'
    assert list_differences(describe("UTC", remote), describe("CET", remote)) == []


def test_the_seed_in_the_conditions_is_the_one_that_draws_the_episodes(tmp_path):
    benchmark = Benchmark(str(write_tasks(tmp_path, "right")))
    plans = [
        plan_evaluation(RunDir(tmp_path / "a"), load(overrides=["rollout.policy=oracle", more]), benchmark)
        for more in ("seed=5", "tasks.test_seed=5", "tasks.test_seed=6")
    ]
    assert [plan.conditions["tasks"]["seed"] for plan in plans] == [5, 5, 6]
    seeds = [plan.episodes[0].seed for plan in plans]
    assert seeds[0] == seeds[1] != seeds[2]


def test_addresses_prices_and_concurrency_are_no_conditions(tmp_path):
    prices = 'cost.prices={"policy": {"prompt": 1, "completion": 1}}'
    others = ("sites.shop.url=http://b.test", "sites.shop.reset=./reset", "rollout.concurrency=3", prices)
    usual, other = (conditions(tmp_path, "sites.shop.isolation=tenant", *more) for more in ((), others))
    assert list_differences(usual, other) == []


def test_a_trained_policy_is_evaluated_as_its_run_was_given_and_on_everybody_s_episodes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"agent.call_format": "react", "policy_config.thinking": True, "policy_config.template": "qwen"}
    words = [f"policy_config.base_model={model(tmp_path / 'model')}", "tasks.test_seed=5", *format_overrides(given)]
    create_or_open(run := RunDir(tmp_path / "run"), load(overrides=words))
    published(run, load(overrides=words))
    for options, call_format in ((PaidOptions(), "react"), (PaidOptions(set_=["agent.call_format=hermes"]), "hermes")):
        settings = eval_._resolve("run", None, options, {})
        assert settings.policy_config.base_model.startswith(str(run.checkpoints))
        assert (settings.agent.call_format, settings.policy_config.thinking) == (call_format, True)
        assert (settings.policy_config.template, settings.test_seed) == ("qwen", 0)


def test_a_dry_run_notes_tasks_that_nothing_scores(tmp_path):
    task = {"instruction": "Go.", "start_url": "https://a.example/"}
    (tmp_path / "own.jsonl").write_text(json.dumps(task))
    for judge, noted in (("", True), ("scripted", False)):
        words = ("http://127.0.0.1:9/v1", "-b", "own.jsonl", "-o", "new", "-s", f"judge.base_url={judge}")
        shown = webgym("eval", *words, "--dry-run", cwd=tmp_path)
        assert ("1 task without a check, and judge.base_url is empty" in shown.stderr) is noted
