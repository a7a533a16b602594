"""`webgym judge` as people meet it, against the scripted judge over real HTTP."""

import asyncio
import json
import signal
from functools import partial

import pytest

from tests import forked
from tests.executable import Command
from tests.records.builders import png
from tests.rewards.cases import GARBAGE, NO, answered
from tests.rewards.scripted_judge import ScriptedReply
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import append, read_judgements, scan
from webgym_cli.store.screenshots import ScreenshotStore

WRONG = "It was painted by Rembrandt in 1632."
FIRST, SECOND = "train-0000-00000", "train-0000-00001"


@pytest.fixture
def run(run):
    """A run with a right and a wrong answer that nobody has judged."""
    for shade in range(3):
        ScreenshotStore(run.screenshots).put(png(shade))
    append(run, answered(0))
    append(run, answered(1, answer=WRONG))
    return run


@pytest.fixture
def asking(server):
    """The variables of a judge to ask."""
    return {"WEBGYM_JUDGE__BASE_URL": server.base_url, "WEBGYM_JUDGE__RETRIES": "0"}


@pytest.fixture
def webgym(asking, tmp_path):
    return partial(asyncio.to_thread, forked.webgym_values, cwd=tmp_path, **asking)


def verdicts(run):
    read = read_judgements(run, Split.TRAIN, 0).items()
    return {name: [judgement.success for judgement in judgements] for name, judgements in read}


async def test_it_judges_what_has_no_verdict_once(webgym, run, server):
    code, events, result = await webgym("judge", run.root, "--json")
    assert (code, verdicts(run)) == (0, {FIRST: [True], SECOND: [False]})
    assert [event["event"] for event in events] == ["plan", "judgement", "judgement", "judge"]
    assert events[-1].items() >= {"judged": 2, "successes": 1, "success_rate": 0.5}.items()
    assert "judged 2: 1 of 2 solved" in result
    assert f"next: webgym inspect-buffer {run.root}" in result
    assert [trajectory.outcome.reward for trajectory in scan(run, Split.TRAIN, 0)] == [1.0, 0.0]
    count = len(server.requests)
    code, events, _ = await webgym("judge", run.root)
    assert (code, events[-1]["judged"], len(server.requests)) == (0, 0, count)


async def test_ids_can_be_piped_in_and_only_failed_ones_asked_again(webgym, run, server):
    code, events, _ = await webgym("judge", run.root, "-")  # no ids on stdin
    assert (code, events[-1]["judged"], verdicts(run)) == (0, 0, {})
    server.script(GARBAGE, job="fact")
    code, _, result = await webgym("judge", run.root, "-s", "judge.concurrency=1")
    assert (code, verdicts(run)) == (0, {FIRST: [None], SECOND: [False]})
    assert f"next: webgym judge {run.root} --failed" in result
    ids = json.dumps({"id": FIRST}) + "\n"
    await webgym("judge", run.root, "-", stdin=ids)
    assert verdicts(run) == {FIRST: [None, True], SECOND: [False]}
    code, events, _ = await webgym("judge", run.root, "--failed")
    assert (code, events[-1]["judged"]) == (0, 0)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str)
async def test_stopped_it_keeps_what_was_judged_and_resume_does_the_rest(asking, webgym, run, server, number, status):
    server.script(NO, ScriptedReply(silent=True), job="blocking")
    words = ("judge", run.root, "--iteration", "0", "-s", "judge.concurrency=1")
    command = await asyncio.to_thread(Command, run.root.parent, *words, **asking)
    await asyncio.wait_for(server.arrived(2, "blocking"), 60)
    assert await asyncio.to_thread(command.send, number) == status
    assert verdicts(run) == {FIRST: [True]}
    code, events, result = await webgym("resume", run.root)
    assert (code, events[-1]["judged"], verdicts(run)) == (0, 1, {FIRST: [True], SECOND: [False]})
    assert "resuming `webgym judge`" in result


PLUGIN = """
from webgym_cli.rewards.judge.protocol import PROTOCOLS, JudgeProtocol
from webgym_cli.rewards.judge.question import CaptionedImage, JudgeQuestion

RULES = ("Question: is Vermeer named in `answer`?", '"yes": he is. "no": he is not.')


async def judge_painter(session):
    if session.trajectory.outcome.answer == "{bug}":
        raise KeyError("painter")
    last = session.trajectory.steps[-1].observation.screenshot
    data = {{"answer": session.trajectory.outcome.answer or ""}}
    question = JudgeQuestion("painter", RULES, data, (CaptionedImage("Last:", last.sha256),))
    verdict = await session.vote(question, "Vermeer")
    session.fields["facts"] = (verdict,)
    return verdict.passed


PROTOCOLS.register("painter", JudgeProtocol(judge_painter, RULES))
"""


async def test_a_protocol_of_a_plugin_judges_and_fails_closed(run, webgym, server, tmp_path):
    (tmp_path / "painter.py").write_text(PLUGIN.format(bug=WRONG))
    server.script(json.dumps({"reason": "he is", "verdict": "yes"}), job="painter")
    ours = ("-s", 'plugins=["painter.py"]', "-s", "judge.protocol=painter", "-s", "judge.concurrency=1")
    code, shown, result = await webgym("judge", run.root, *ours)
    assert code == 0, result
    assert (code, shown[-1]["successes"], shown[-1]["judge_failed"]) == (0, 1, 1)
    (judgement,) = read_judgements(run, Split.TRAIN, 0)[FIRST]
    assert [(fact.question, fact.passed) for fact in judgement.facts] == [("Vermeer", True)]
    assert (len(server.requests[0].images), [request.job for request in server.requests]) == (1, ["painter"])
    (failed,) = read_judgements(run, Split.TRAIN, 0)[SECOND]
    assert (failed.success, failed.failure_detail) == (None, "KeyError: 'painter'")
    code, shown, _ = await webgym("judge", run.root, *ours, "--dry-run")
    assert shown[-1]["skipped_judged_with_these_settings"] == 1
    code, shown, _ = await webgym("judge", run.root, "-s", "judge.protocol=webgym", "--all", "--dry-run")
    assert shown[-1]["owed"] == 2  # by the built-in protocol neither is judged
