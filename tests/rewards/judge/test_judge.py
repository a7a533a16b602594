"""The judge against a scripted server over real HTTP: order, votes, key points, and that it fails closed."""

import asyncio
import base64
import json
from itertools import cycle

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.json_server import completion
from tests.records.builders import UNSOLVED, new_run, png
from tests.rewards.cases import ANSWER, DOWN, GARBAGE, NO, YES, answered, judge_settings, seen, web_task
from tests.rewards.scripted_judge import ScriptedJudgeServer, ScriptedReply
from tests.tables import each
from tests.tasks.test_encryption import CANARY, encrypt
from webgym_cli.config.judge import JudgeSettings
from webgym_cli.errors import SettingsError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import with_verdict
from webgym_cli.records.task import Split
from webgym_cli.records.usage import TokenUsage
from webgym_cli.rewards.judge.client import require_judge, settings_for
from webgym_cli.rewards.judge.judge import Judge, compute_settings_digest
from webgym_cli.rewards.judge.protocol import PROTOCOLS, JudgeProtocol
from webgym_cli.rewards.judge.webgym import CLAIMS_QUESTION, select_distinct, select_evenly
from webgym_cli.store.buffer import read_judgements
from webgym_cli.store.run import RunDir
from webgym_cli.tasks.encryption import CANARY as CANARY_FIELD
from webgym_cli.tasks.encryption import ENCRYPTED


def jobs(server):
    return [request.job for request in server.requests]


async def test_a_right_answer_is_a_success_with_every_verdict_in_its_order(judge, server):
    trajectory = answered(task=web_task(rubric=("The painter is Vermeer", "1665"), reference_answer=ANSWER))
    own = {"key_points": {"model": "small"}, "blocking": {"model": "guard"}}
    judgement = await judge(trajectory, model="big", jobs=own)
    assert (judgement.success, judgement.failure, judgement.blocked, judgement.calls) == (True, None, False, 7)
    assert [(fact.question, fact.passed, fact.votes) for fact in judgement.facts] == [
        ("The painter is Vermeer", True, (True,)),
        ("1665", True, (True,)),
    ]
    assert (judgement.claims.question, judgement.claims.passed) == (CLAIMS_QUESTION, True)
    assert (judgement.reference.question, judgement.reference.passed) == (ANSWER, True)
    assert all(verdict.reason for verdict in (*judgement.facts, judgement.claims, judgement.reference))
    assert judgement.models == {"key_points": "small", "blocking": "guard", "verdict": "big"}
    assert [(request.job, request.request["model"]) for request in server.requests] == [
        ("blocking", "guard"),
        *[("key_point", "small")] * 2,
        *(("claims", "big"), ("fact", "big"), ("fact", "big"), ("reference", "big")),
    ]


async def test_each_job_has_its_address_and_key(judge, server):
    async with ScriptedJudgeServer() as other:
        own = {"blocking": {"base_url": other.base_url, "model": "guard"}, "key_points": {"model": "small"}}
        await judge(answered(), jobs=own)
        assert jobs(other) == ["blocking"] and other.requests[0].request["model"] == "guard"
        assert "blocking" not in jobs(server) and "key_point" in jobs(server)
    of_jobs = {"key_points": {"api_key_env_var": "K", "max_new_tokens": 99}, "blocking": {"base_url": "http://b/v1"}}
    settings = JudgeSettings.model_validate({"base_url": "http://a/v1", "api_key_env_var": "A", "jobs": of_jobs})
    assert JudgeSettings.model_validate_json(settings.model_dump_json()).for_job("key_points").max_new_tokens == 99
    assert settings.model_dump(mode="json")["jobs"] == of_jobs
    used = {job: settings_for(settings, job) for job in ("fact", "key_point", "blocking")}
    assert {job: (of.base_url, of.api_key_env_var) for job, of in used.items()} == {
        "fact": ("http://a/v1", "A"),
        "key_point": ("http://a/v1", "K"),
        "blocking": ("http://b/v1", ""),  # the other server's key is not sent to it
    }
    for wrong in ({"base_url": "http://a/v1", "jobs": {"blocking": {"base_url": "elsewhere"}}}, {"base_url": "nosuch"}):
        with pytest.raises(SettingsError, match="no http"):
            require_judge(JudgeSettings.model_validate(wrong))
    wrong_body = {"extra_body": {"reasoning_effort": "low", "model": "other"}}
    for section, given in (("judge", wrong_body), ("judge.jobs.blocking", {"jobs": {"blocking": wrong_body}})):
        with pytest.raises(SettingsError, match=rf"^{section}\.extra_body\.model: "):
            require_judge(JudgeSettings.model_validate({"base_url": "http://a/v1", **given}))


async def test_the_first_fact_that_fails_decides(judge, server):
    judgement = await judge(answered(rubric=("The painter is Rembrandt", "The year is 1665")))
    assert (judgement.success, [fact.passed for fact in judgement.facts]) == (False, [False])
    assert jobs(server).count("fact") == 1


async def test_a_claim_that_is_not_seen_fails_before_any_fact_where_claims_are_checked(judge, server):
    judgement = await judge(answered(), check_claims=False)
    assert (judgement.success, judgement.claims) == (True, None)
    assert "claims" not in jobs(server)
    server.script(NO, job="claims")
    judgement = await judge(answered())
    assert (judgement.success, judgement.claims.passed, judgement.facts) == (False, False, ())


@pytest.mark.parametrize(
    ("task", "passed"),
    [
        ({"rubric": ("Named is Rubens |OR| Named is Vermeer",)}, True),
        ({"rubric": ("Named is Rubens |OR| 1700",)}, False),
        ({"reference_answer": "Rubens|OR|it was painted by vermeer in 1665"}, True),
        ({"reference_answer": "Rubens"}, False),
    ],
)
async def test_one_alternative_of_a_fact_or_a_reference_is_enough(judge, task, passed):
    judgement = await judge(answered(task=web_task(**task)))
    assert (judgement.success, judgement.failure) == (passed, None)
    assert "reference_answer" not in task or (judgement.facts, judgement.reference.passed) == ((), passed)


async def test_without_rubric_and_reference_the_instruction_is_the_fact(judge, server):
    judgement = await judge(answered(task=web_task(), instruction="name Vermeer"))
    assert [fact.question for fact in judgement.facts] == ["The task was carried out: name Vermeer"]
    assert judgement.success is True
    assert jobs(server)[-2:] == ["claims", "fact"]


async def test_an_unanswered_episode_is_asked_about_blocking_only_and_a_tie_is_no_block(judge, server):
    judgement = await judge(answered(outcome=UNSOLVED))
    assert (judgement.success, judgement.blocked, jobs(server)) == (False, False, ["blocking"])
    server.script(YES, NO, job="blocking")
    assert (await judge(answered(outcome=UNSOLVED), votes=2)).success is False


@pytest.mark.parametrize("outcome", [UNSOLVED, answered().outcome], ids=["unanswered", "answered"])
async def test_a_blocked_site_is_no_failure_of_the_agent(judge, server, outcome):
    steps = (seen(0, 0), seen(1, 1, title="Please solve the CAPTCHA"))
    judgement = await judge(trajectory := answered(outcome=outcome, steps=steps))
    assert (judgement.success, judgement.failure, judgement.blocked) == (None, FailureKind.SITE_BLOCKED, True)
    assert jobs(server) == ["blocking"]
    after = with_verdict(trajectory, judgement).outcome
    assert (after.reward, after.success, after.failure) == (None, None, FailureKind.SITE_BLOCKED)


FAIL_OPEN = [
    GARBAGE,
    "",
    "FAILURE",
    "NOT SUCCESS",
    "2. Verdict: Not success",
    "2. Verdict:\nNOT SUCCESS",
    "2. Verdict:\nSUCCESS",
    "SUCCESS",
    "yes",
    '"yes"',
    "true",
    "[]",
    '{"reason": "seen", "verdict": "ye',
    '{"reason": "seen"}',
    '{"verdict": "yes"}',
    '{"reason": "seen", "verdict": true}',
    '{"reason": "seen", "verdict": "SUCCESS"}',
    '{"reason": "seen", "verdict": null}',
    '{"reason": "seen", "verdict": "yes", "final": "no"}',
    '{"reason": "seen", "verdict": "no", "verdict": "yes"}',
    f"{YES}{NO}",
    f"{YES}\n{YES}",
    f"The verdict: {YES}",
    f"```json\n{YES}\n```\nBut in the end: no",
    f"[{YES}]",
    "[" * 50_000,
    f"<think>{YES}</think>",
    f"<think>{YES}",
    f"<think>a</think>{YES}{NO}",
    f"<think>a</think>{YES}</think>{NO}",
    f"{YES}</think>{YES}",
    f"<think>a</think> yes {YES}",
]


@pytest.mark.parametrize(
    ("reply", "job"),
    [*zip(FAIL_OPEN, cycle(["blocking", "claims", "fact"]), strict=False), (GARBAGE, "claims"), (GARBAGE, "fact")],
    ids=lambda value: repr(value[:30]),
)
async def test_what_can_not_be_read_is_judge_failed(judge, server, reply, job):
    server.script(reply, job=job)
    judgement = await judge(trajectory := answered())
    assert (judgement.success, judgement.failure, judgement.unavailable) == (None, FailureKind.JUDGE_FAILED, False)
    assert judgement.failure_detail.startswith(f"{job}: the answer is ")
    outcome = with_verdict(trajectory, judgement).outcome
    assert (outcome.reward, outcome.success) == (None, None)


CUT = [
    *(ScriptedReply(YES, finish_reason=reason) for reason in ("length", "content_filter")),
    ScriptedReply(None),
    *(ScriptedReply(body=body) for body in (b"{half", b"", b"{}", b'{"choices": []}', b'{"choices": [{}, {}]}')),
    *(ScriptedReply(body=body) for body in (b'{"choices": [{"finish_reason": "stop"}]}', b"[1]", b"null")),
]


@pytest.mark.parametrize("reply", CUT, ids=str)
async def test_an_answer_that_is_cut_or_none_is_judge_failed(judge, server, reply):
    server.script(reply, job="fact")
    judgement = await judge(answered())
    assert (judgement.success, judgement.failure, judgement.unavailable) == (None, FailureKind.JUDGE_FAILED, False)


THOUGHTS = ("", "<think>It says no.</think>\n\n", "<think></think>", "It says </think> once.\n</think>\n")


@pytest.mark.parametrize(
    "reply",
    [
        *(thought + form for form in (NO, f"```json\n{NO}\n```") for thought in THOUGHTS),
        '{"reason": "it wrote </think>{ there", "verdict": "no"}',
    ],
)
async def test_a_judge_may_think_first_and_fence_its_answer(judge, server, reply):
    server.script(reply, job="claims")
    assert (await judge(answered())).success is False


@pytest.mark.parametrize(
    ("result", "fields"),
    [
        *((result, {}) for result in (0.375, float("nan"), float("inf"), 2, -1, [True], {"success": True}, "maybe")),
        *((True, fields) for fields in ({"claims": "yes"}, {"probability": float("nan")}, {"blocked": 0.5})),
        *((True, fields) for fields in ({"unknown": 1}, {"failure": "site_blocked"})),
    ],
    ids=str,
)
async def test_a_protocol_that_gives_no_truth_value_or_no_judgement_fails(judge, monkeypatch, result, fields):
    async def run(session):
        session.fields.update(fields)
        return result

    monkeypatch.setitem(PROTOCOLS.registered, "own", JudgeProtocol(run, ()))
    judgement = await judge(answered(), protocol="own")
    assert (judgement.success, judgement.failure, judgement.probability) == (None, FailureKind.JUDGE_FAILED, None)
    assert fields or "success" in judgement.failure_detail


OVERLOADED = ScriptedReply(body=b'{"error": {"message": "the provider is overloaded", "code": 502}}')


@pytest.mark.parametrize(
    ("replies", "failure", "is_unavailable", "detail"),
    [
        ((GARBAGE, ScriptedReply(YES, finish_reason="length"), YES), FailureKind.SITE_BLOCKED, False, ""),
        ((GARBAGE, DOWN, GARBAGE), FailureKind.JUDGE_FAILED, False, ""),  # repeats have an end whatever is wrong
        ((DOWN, DOWN, NO), None, False, ""),
        ((DOWN, DOWN), FailureKind.JUDGE_FAILED, True, "500"),
        ((OVERLOADED, YES), FailureKind.SITE_BLOCKED, False, ""),  # with the status of a success
        ((OVERLOADED, OVERLOADED), FailureKind.JUDGE_FAILED, True, "the provider is overloaded"),
    ],
    ids=range(6),
)
async def test_what_can_not_be_read_or_fails_is_asked_again_and_counted(
    judge, server, replies, failure, is_unavailable, detail
):
    server.script(*replies, job="blocking")
    judgement = await judge(answered(outcome=UNSOLVED), retries=len(replies) - 1)
    assert (judgement.failure, judgement.unavailable, judgement.calls) == (failure, is_unavailable, len(replies))
    assert judgement.success is (None if failure else False) and detail in (judgement.failure_detail or "")


@pytest.mark.parametrize(
    ("replies", "success"),
    [
        ({"reference": json.dumps({"reason": "REMBRANDT HARMENS, no doubt", "verdict": "yes"})}, True),
        ({"reference": f"{'x' * 30} Rembrandt Harmens"}, None),
        ({"blocking": json.dumps({"reason": "It hides who painted in Leiden", "verdict": "yes"})}, None),
        ({"reference": ScriptedReply(status=400, body=b"can't compare rembrandt harmenszoon")}, None),
    ],
)
@pytest.mark.parametrize("expected", ["Rembrandt Harmenszoon", "no"])
async def test_no_word_of_the_judge_about_an_encrypted_task_is_stored(judge, server, replies, success, expected):
    known = {"instruction": "Who painted in Leiden?", "reference_answer": expected}
    encrypted = {name: f"{ENCRYPTED}{encrypt(text)}" for name, text in known.items()}
    trajectory = answered(
        task=web_task(extra={CANARY_FIELD: CANARY}, **encrypted), instruction=encrypted["instruction"]
    )
    for job, reply in replies.items():
        server.script(reply, job=job)
    judgement = await judge(trajectory, check_claims=False)
    assert {question.data.get("task", known["instruction"]) for question in server.requests} == {known["instruction"]}
    assert judgement.success is success
    assert judgement.failure_detail == ("" if success else "not stored, as the task is encrypted")
    reasons = [verdict.reason for verdict in (*judgement.facts, judgement.reference) if verdict]
    assert {judgement.blocked_reason, *reasons} == {""}


async def test_half_a_character_in_a_reason_never_reaches_the_store(judge, server):
    server.script('{"reason": "a\\ud800b", "verdict": "yes"}', job="fact")
    assert (await judge(answered())).to_line().encode()


@pytest.mark.parametrize(
    ("reply", "retries"),
    [*((ScriptedReply(status=status), 2) for status in (400, 401, 404)), (ScriptedReply(silent=True), 0)],
    ids=str,
)
async def test_a_refused_request_is_not_repeated_and_a_silent_judge_has_a_deadline(judge, server, reply, retries):
    server.script(reply, job="blocking")
    judgement = await judge(answered(), retries=retries, timeout=30 if retries else 0.2)
    assert (judgement.failure, judgement.unavailable, judgement.calls) == (FailureKind.JUDGE_FAILED, True, 1)


async def test_cancellation_passes_and_the_requests_so_far_are_counted(server, pictured):
    server.script(ScriptedReply(silent=True), job="fact")
    judges = [Judge(judge_settings(server), pictured) for _ in range(2)]
    tasks = [asyncio.create_task(judges[0].judge(answered(iteration=3)))]
    await server.arrived(1, "fact")
    tasks.append(asyncio.create_task(judges[1].judge(answered(iteration=4))))
    await asyncio.sleep(0)  # it is not connected yet
    for task, judge in zip(tasks, judges, strict=True):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await judge.close()
    ((spent,),) = read_judgements(pictured, Split.TRAIN, 3).values()
    assert (spent.success, spent.unavailable, spent.calls) == (None, True, len(server.requests) - 1)
    assert read_judgements(pictured, Split.TRAIN, 4) == {}


async def test_a_lost_screenshot_is_judge_failed_and_named_and_none_can_not_be_judged(judge, tmp_path):
    judgement = await judge(answered(), run=new_run(tmp_path))
    assert (judgement.success, judgement.failure) == (None, FailureKind.JUDGE_FAILED)
    assert "the screenshot can't be read" in judgement.failure_detail
    judgement = await judge(answered(steps=()))
    assert (judgement.success, judgement.failure, judgement.calls) == (None, FailureKind.JUDGE_FAILED, 0)


async def test_only_screenshots_that_matter_are_shown_and_the_last_always(judge, server):
    server.script(NO, YES, NO, job="key_point")
    judgement = await judge(answered(shades=range(4)))
    assert judgement.key_points in {(0, 3), (1, 3), (2, 3)}  # they are asked at once, so any of them may meet the YES
    (fact, _) = (request for request in server.requests if request.job == "fact")
    shown = [base64.b64encode(png(index)).decode() for index in judgement.key_points]
    assert [image.removeprefix("data:image/png;base64,") for image in fact.images] == shown


async def test_screenshots_that_can_not_be_told_about_are_shown_and_equal_ones_in_a_row_asked_once(judge, server):
    server.script(GARBAGE, DOWN, ScriptedReply(status=400), job="key_point")
    judgement = await judge(answered(shades=range(4)))
    assert (judgement.key_points, judgement.success) == ((0, 1, 2, 3), True)
    server.requests.clear()
    assert (await judge(answered(shades=[0, 0, 1, 0, 2, 2]))).key_points == (1, 2, 3, 5)
    assert jobs(server).count("key_point") == 3
    server.requests.clear()
    assert (await judge(answered(shades=range(6)), max_images=3, max_blocking_images=2)).key_points == (3, 4, 5)
    blocking = next(request for request in server.requests if request.job == "blocking")
    assert [page["step"] for page in blocking.data["pages"]] == [1, 6]


@each(
    ("count", "limit", "expected"),
    [
        *((count, 4, [*range(count)]) for count in (0, 3, 4)),
        *((10, 1, [9]), (10, 2, [0, 9]), (10, 4, [0, 3, 6, 9]), (9, 5, [0, 2, 4, 6, 8])),
    ],
)
def test_screenshots_are_spread_evenly(count, limit, expected):
    assert select_evenly(range(count), limit) == expected


def test_the_last_of_equal_screenshots_stands_for_them():
    assert select_distinct([seen(index, shade) for index, shade in enumerate([5, 5, 5, 6, 5])]) == [2, 3, 4]
    assert select_distinct([]) == []


@pytest.mark.parametrize(
    ("votes", "success", "counted"),
    [
        ([YES, YES, NO], True, 2),
        ([YES, NO, NO], False, 1),
        ([YES, NO], False, 1),
        ([YES, YES, NO, NO], False, 2),
        ([YES, YES, GARBAGE], True, 2),
        ([NO, NO, GARBAGE], False, 0),
        ([NO, GARBAGE], False, 0),
        ([NO, NO, YES, GARBAGE], False, 1),
        ([YES, NO, GARBAGE], None, None),
        ([YES, GARBAGE], None, None),
        ([YES, YES, NO, GARBAGE], None, None),
        ([GARBAGE, GARBAGE, YES], None, None),
        ([NO, GARBAGE, GARBAGE], None, None),
        ([GARBAGE, GARBAGE, GARBAGE], None, None),
    ],
    ids=str,
)
async def test_the_majority_decides_and_what_is_open_fails(judge, server, votes, success, counted):
    server.script(*[NO] * len(votes), job="blocking")
    server.script(*votes, job="fact")
    judgement = await judge(answered(rubric=("Vermeer",)), votes=len(votes), check_claims=False)
    assert judgement.success is success
    if success is None:
        assert (judgement.failure, judgement.facts) == (FailureKind.JUDGE_FAILED, ())
    else:
        (fact,) = judgement.facts
        assert (fact.passed, sum(fact.votes)) == (success, counted)
        assert fact.reason == ("seen" if success else "not seen")


async def test_the_tokens_of_votes_that_are_answered_at_the_same_time_are_all_counted(judge):
    async def answer(request):
        verdict = {"reason": "", "verdict": "no" if "blocking" in await request.text() else "yes"}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return web.json_response(completion(json.dumps(verdict)) | {"usage": usage})

    application = web.Application(client_max_size=2**24)
    application.router.add_post("/v1/chat/completions", answer)
    async with TestServer(application) as running:
        address = str(running.make_url("/v1"))
        case = answered(rubric=("Vermeer",))
        judgement = await judge(case, votes=5, base_url=address)
        two = await judge(case, votes=5, base_url=address, model="big", jobs={"blocking": {"model": "small"}})
    assert judgement.calls > 10
    blocking = TokenUsage(prompt=500, completion=50)  # five votes
    assert (judgement.tokens_by_model, two.tokens_by_model["small"]) == ({}, blocking)
    assert two.tokens_by_model["big"] + blocking == two.tokens == judgement.tokens
    assert judgement.tokens == TokenUsage(prompt=100 * judgement.calls, completion=10 * judgement.calls)


@pytest.mark.parametrize("mode", ["json_schema", "json_object"])
async def test_the_server_is_told_the_form_of_the_answer(judge, server, mode):
    await judge(answered(), structured_output=mode, temperature=0.25, max_new_tokens=77)
    for request in server.requests:
        assert (request.request["temperature"], request.request["max_tokens"]) == (0.25, 77)
        assert request.request["response_format"]["type"] == mode
        if mode == "json_schema":
            form = request.request["response_format"]["json_schema"]
            assert (form["name"], form["strict"]) == (request.job, True)
            assert list(form["schema"]["properties"]) == ["reason", "verdict"]
    server.requests.clear()
    await judge(answered(), structured_output="none")
    assert all(set(request.request) == {"model", "temperature", "max_tokens"} for request in server.requests)


async def test_a_server_that_takes_the_limit_by_its_long_name_only_gets_that(judge, server):
    refusal = b'{"error": {"message": "Unsupported parameter: use max_completion_tokens instead."}}'
    server.script(ScriptedReply(status=400, body=refusal))
    judgement = await judge(answered(), max_new_tokens=77)
    assert (judgement.success, judgement.calls) == (True, 7)
    first, *later = (request.request for request in server.requests)
    assert first["max_tokens"] == 77
    assert all(request["max_completion_tokens"] == 77 and "max_tokens" not in request for request in later)


@pytest.mark.parametrize(("key", "sent"), [("s3cret\n", "Bearer s3cret"), ("", "Bearer none")])
async def test_the_key_comes_from_the_environment_only(judge, server, monkeypatch, key, sent):
    monkeypatch.setenv("JUDGE_TEST_KEY", key)
    judgement = await judge(answered())
    assert {request.authorization for request in server.requests} == {sent}
    assert "s3cret" not in judgement.to_line()


def test_a_key_that_no_header_carries_or_an_address_that_is_none_is_a_setting_error(monkeypatch, tmp_path):
    for url in ("", "nosuch", "ftp://a/", "http://", "http://[::1/v1"):
        with pytest.raises(SettingsError, match=r"judge\.base_url") as caught:
            Judge(JudgeSettings(base_url=url), RunDir(tmp_path))
        assert "judge.base_url=" in caught.value.hint
    monkeypatch.setenv("OPENAI_API_KEY", "schlüssel")
    with pytest.raises(SettingsError, match=r"^environment OPENAI_API_KEY: (?!.*schl)"):
        Judge(JudgeSettings(base_url="http://127.0.0.1:1/v1"), RunDir(tmp_path))


async def test_no_more_calls_at_once_than_allowed(server, pictured):
    judge = Judge(judge_settings(server, concurrency=2), pictured)
    server.script(*[ScriptedReply(silent=True)] * 2, job="key_point")
    task = asyncio.create_task(judge.judge(answered(shades=range(10))))
    await server.arrived(2, "key_point")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(server.arrived(3, "key_point"), 0.3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await judge.close()


def test_the_digest_follows_what_decides_and_nothing_else():
    base = compute_settings_digest(JudgeSettings())
    deciding = {
        "model": "x",
        "jobs": {"key_points": {"model": "x"}},
        "top_p": 0.5,
        "extra_body": {"reasoning_effort": "low"},
        "votes": 3,
        "max_images": 3,
        "max_blocking_images": 3,
        "check_claims": False,
        "temperature": 0.5,
        "max_new_tokens": 99,
        "structured_output": "none",
    }
    digests = {compute_settings_digest(JudgeSettings.model_validate({name: value})) for name, value in deciding.items()}
    assert len(digests | {base}) == len(deciding) + 1
    elsewhere = JudgeSettings(base_url="http://a/v1", retries=9, timeout=9, concurrency=9, api_key_env_var="X")
    assert compute_settings_digest(elsewhere) == base
    named = JudgeSettings(jobs={"key_points": {"model": JudgeSettings().model}})
    assert compute_settings_digest(named) == base
