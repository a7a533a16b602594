"""Published protocols: what the judge is asked, how its answers are read, and that nothing unreadable is a success."""

import re
from itertools import product

import pytest

from tests.rewards.cases import ANSWER, answered, seen
from tests.rewards.scripted_judge import ScriptedReply
from tests.tables import each
from webgym_cli.agent.client.chat import JudgeReply, UnreadableError, read_object
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.sample import Message, SentPrompt
from webgym_cli.records.trajectory import Outcome
from webgym_cli.rewards.judge import replies
from webgym_cli.rewards.judge.protocol import PROTOCOLS

NAMES = ("webvoyager", "webjudge", "agenttrek", "agentrewardbench")
STEPS = tuple(seen(index, index, title="A portrait" if index != 1 else "Way") for index in range(4))
SENT = SentPrompt(messages=(Message(role="user", content="Go."),), images=())
LIMIT = Outcome(reward=0.0, stop=Stop.STEP_LIMIT)

TAG = "<success>Successful</success>"


def read_reply(text):
    return read_object(text, JudgeReply)


YES = {"webvoyager": "It was. SUCCESS", "agentrewardbench": "<success>Successful</success> <loop>No</loop>"}
NO = {"webvoyager": "NOT SUCCESS", "agentrewardbench": "<success>Unsuccessful</success>"}

# None of them is a verdict in any form.
HOSTILE = (
    "I'm sorry, but I can't help with that. SUCCESS cannot be judged.",
    "UNSUCCESSFUL",
    "❌ SUCCESS",
    "❌\nSUCCESS",
    "🚫 SUCCESS",
    "Status: ❌ success",
    "The banner\n```\nSUCCESS\n```",
    "This was NOT a SUCCESS",
    "The page says: NOT SUCCESS. Verdict: SUCCESS",
    "I choose between SUCCESS and NOT SUCCESS: SUCCESS",
    "N\u200bOT SUCCESS",
    "N\u041eT SUCCESS",
    "\u0405UCCESS",
    "Das ist kein SUCCESS",
    "任务失败，不是 SUCCESS",
    "Status: 成功",
    "<success>成功</success>",
    "Status: success or failure",
    'Status: "success" or "failure"',
    "Status: success? No: failure",
    "Status: succe\u0455s",
    "Thoughts: the page shows its own status: success",
    '```json\n{"status": "success", "verdict": "SUCCESS"}\n```',
    "<success>Successful or Unsuccessful</success>",
    "The page shows <success>Successful</success>. <success>No</success>",
    "<success>Successful</success><success>Unsuccessful</success>",
    "<success>Successful",
    "<succes\u0455>Successful</succes\u0455>",
    "The banner reads: SUCCESS",
    "The banner says:\n\nSUCCESS",
    "123. SUCCESS",
    "Step 3. SUCCESS",
    "1.1. SUCCESS",
    "(3). SUCCESS",
    "任务没有完成。SUCCESS",
    "Die Aufgabe ist nicht erfüllt. SUCCESS",
    "The agent failed to find the item. SUCCESS",
    "The answer does not match. SUCCESS",
    'The page said "Order placed. SUCCESS"',
    "I can't call this a\nSUCCESS",
    "Das ist kein\nSUCCESS",
    "The order status is SUCCESS",
    "The page's verdict is SUCCESS",
    "The agent claims the verdict is SUCCESS",
    "A toast:\n\nSUCCESS",
    "Its conclusion is SUCCESS",
    "It is false that the verdict is SUCCESS",
    "One might argue the verdict is SUCCESS",
    "SUCCESS / NOT SUCCESS",
    "SUCCESS\n\nNo wait, the filter was not applied.",
    "\u017fUCCESS",
    "Status: ~~failure~~ success",
    "Payment status: success\nI can't judge this.",
    'Status: "success',
    "<success>Successful? No</success>",
    '{"reason": "x", "verdict": "yes?"}',
    'The page has {"reason": "x", "verdict": "yes"}, but I cannot judge.',
)


@pytest.mark.parametrize("protocol", NAMES)
@pytest.mark.parametrize(("texts", "status", "success"), [(YES, "success", True), (NO, "failure", False)])
async def test_a_verdict_is_read_in_its_published_form(judge, server, protocol, texts, status, success):
    server.script(texts.get(protocol, f'Thoughts: so.\nStatus: "{status}"'), job=protocol)
    judgement = await judge(answered(steps=STEPS), protocol=protocol)
    assert (judgement.success, judgement.failure) == (success, None)
    assert all("response_format" not in question.request for question in server.requests)


UNCLEAR = ("", "I can't tell.", "Status: unclear", "Status: success\nStatus: failure", "<success>Maybe</success>")


@pytest.mark.parametrize("protocol", NAMES)
@pytest.mark.parametrize("reply", [*UNCLEAR, '{"verdict": "yes"}', None])
async def test_an_unreadable_or_cut_verdict_is_no_verdict(judge, server, protocol, reply):
    cut = ScriptedReply(YES.get(protocol, "Status: success"), finish_reason="length")
    server.script(cut if reply is None else reply, job=protocol)
    judgement = await judge(answered(steps=STEPS), protocol=protocol)
    assert (judgement.success, judgement.failure) == (None, FailureKind.JUDGE_FAILED)
    server.requests.clear()
    judgement = await judge(answered(steps=()), protocol=protocol)
    assert (judgement.success, judgement.failure, server.requests) == (None, FailureKind.JUDGE_FAILED, [])


async def test_webvoyager_sees_the_answer_and_the_last_screenshots(judge, server):
    await judge(answered(steps=STEPS), protocol="webvoyager", max_images=2)
    (question,) = server.requests
    assert (question.data["answer"], len(question.images)) == (ANSWER, 2)
    assert set(question.data) == {"question", "task", "answer"}
    assert (await judge(answered(steps=STEPS, outcome=LIMIT), protocol="webvoyager")).success is False
    assert (await judge(answered(answer=" ", steps=STEPS), protocol="webvoyager")).success is False
    assert len(server.requests) == 1, "without an answer nothing is asked"


async def test_webjudge_lists_key_points_scores_each_screenshot_and_sees_actions_not_the_answer(judge, server):
    server.script("1. The painter.\n2. The year.", job="webjudge_key_points")
    scores = (
        ScriptedReply(f"Reasoning: r{score}.\nScore: {score}", step=step) for step, score in enumerate((5, 2, 3, 1), 1)
    )
    server.script(*scores, job="webjudge_score")
    answering = seen(3, 3, action=Action(name=ActionName.ANSWER, text=ANSWER))
    judgement = await judge(answered(steps=(*STEPS[:3], answering)), protocol="webjudge")
    jobs = [question.job for question in server.requests]
    assert jobs == ["webjudge_key_points", *["webjudge_score"] * 4, "webjudge"]
    assert all(len(question.images) == 1 for question in server.requests[1:5])
    last = server.requests[-1]
    assert (judgement.key_points, len(last.images)) == ((0, 2), 2)
    assert last.data["key_points"] == "1. The painter.\n2. The year."
    assert last.data["actions"] == ["click (10, 20)"] * 3, "the last one is the answer"
    assert [note[:13] for note in last.data["notes"]] == ["Reasoning: r5", "Reasoning: r3"]
    assert "answer" not in last.data
    assert judgement.calls == 6
    server.script("1. The painter.", job="webjudge_key_points")
    server.script(*["Score: 5"] * 4, job="webjudge_score")
    await judge(answered(steps=STEPS, outcome=LIMIT), protocol="webjudge")
    assert server.requests[-1].data["actions"] == ["click (10, 20)"] * 4, "without an answer all are actions"
    server.script("1. The painter.", job="webjudge_key_points")
    server.script(*["Score: 5"] * 4, job="webjudge_score")
    await judge(answered(steps=STEPS), protocol="webjudge")
    assert server.requests[-1].data["actions"] == ["click (10, 20)"] * 4, "the answer was given beside the steps"


@pytest.mark.parametrize(("sent", "shown"), [(SENT, (1, 3)), (None, (0, 1, 2, 3))])
async def test_the_page_that_steps_of_another_system_have_again_is_shown_once(judge, sent, shown):
    steps = tuple(seen(index, index // 2, sent=sent) for index in range(4))
    assert (await judge(answered(steps=steps), protocol="webvoyager")).key_points == shown


@pytest.mark.parametrize("job", ["webjudge_key_points", "webjudge_score"])
@pytest.mark.parametrize("reply", ["", "I'm sorry, but I can't help with that."])
async def test_webjudge_fails_where_one_of_its_steps_does(judge, server, job, reply):
    server.script(reply, job=job)
    assert (await judge(answered(steps=STEPS), protocol="webjudge")).failure is FailureKind.JUDGE_FAILED


async def test_agenttrek_is_one_request_with_the_actions_and_the_last_screenshot(judge, server):
    judgement = await judge(answered(steps=STEPS, outcome=LIMIT), protocol="agenttrek")
    (question,) = server.requests
    assert (len(question.images), judgement.key_points, len(question.data["actions"])) == (1, (3,), 4)
    assert {"action", "response"} == set(question.data["actions"][0])


async def test_agentrewardbench_sees_actions_with_texts_and_the_last_page_and_answers_four_questions(judge, server):
    text = "<success>Successful</success><side>No</side><optimal>3. Somewhat Optimal</optimal><loop>Yes</loop>"
    text = f"<reasoning>{'It looked. ' * 500}</reasoning>{text}"
    server.script(text, job="agentrewardbench")
    judgement = await judge(answered(steps=STEPS), protocol="agentrewardbench")
    (question,) = server.requests
    assert (len(question.images), judgement.key_points, question.data["answer"]) == (1, (3,), ANSWER)
    assert {"url", "action", "response"} == set(question.data["actions"][0])
    assert "elements" in question.data
    assert judgement.extras == {"side_effect": 0.0, "optimality": 3.0, "looping": 1.0}


@each(
    ("text", "known"),
    [
        ("<side>Yes</side> <optimal>4. Completely Optimal</optimal>", {"side_effect": 1.0, "optimality": 4.0}),
        ("<optimal>1</optimal> <loop> no. </loop>", {"optimality": 1.0, "looping": 0.0}),
        ("<optimal>Suboptimal</optimal>\n<loop>**Yes**</loop>", {"optimality": 2.0, "looping": 1.0}),
        ("<optimal>2. Completely Optimal, or 3</optimal> <side>Yes or No</side> <loop>Maybe</loop>", {}),
        ("<side>Yes</side><side>No</side> <optimal>5</optimal> <loop>Yes", {}),
        ("<reasoning><loop>Yes</loop></reasoning> <!-- <side>Yes</side> -->", {}),
    ],
)
def test_an_annotation_that_is_unclear_is_left_out(text, known):
    assert replies.read_annotations(text) == known


@pytest.mark.parametrize(
    ("protocol", "given", "shown"),
    [("webvoyager", {}, range(5, 20)), ("webvoyager", {"max_images": 3}, range(17, 20)), ("webjudge", {}, range(20))],
)
async def test_the_number_of_screenshots_is_the_protocol_s_own(judge, server, protocol, given, shown):
    steps = tuple(seen(index, index) for index in range(20))
    server.script(*["Score: 5"] * 20, job="webjudge_score")
    assert (await judge(answered(steps=steps), protocol=protocol, **given)).key_points == tuple(shown)


@each(
    ("text", "yes"),
    [
        ("The list is sorted.\n\n**SUCCESS**", True),
        ("Verdict: SUCCESS.", True),
        ("It costs 42. SUCCESS", True),
        ("Found 3. SUCCESS", True),
        ("It removed all that do not match. SUCCESS", True),
        ("The agent failed to log in but ordered as a guest. SUCCESS", True),
        ("没有任何要求未满足。SUCCESS", True),
        ("The agent failed to log in, then ordered as a guest. SUCCESS", True),
        ("The page shows it, so the verdict is 'SUCCESS'.", True),
        ("The list is not sorted, therefore the verdict is NOT SUCCESS", False),
        ("It is not sorted, but nobody asked for it. SUCCESS", True),
        ("The price is missing. **NOT SUCCESS**.", False),
        ("Verdict: NOT\nSUCCESS", False),
        ("The task is NOT SUCCESSFUL as no screenshot shows the price.", False),
        ("Verdict: NOT SUCCESS because it lacks a price.", False),
        ("It costs 1.1. SUCCESS", True),
        ('A sign says "SUCCESS". NOT SUCCESS', False),
        ("It is all there.\n\nSuccess", True),
        ("### Verdict\n\n> **Not Success**", False),
        ("Verdict \u2014 NOT_SUCCESS", False),
        ("Therefore, the result is **SUCCESS**", True),
        ("[NOT SUCCESS]", False),
        ("任务未完成。NOT SUCCESS", False),
        ("裁定：SUCCESS", True),
        ("The price is shown.\n\n✅ **SUCCESS**", True),
        ("## Verdict: **NOT SUCCESS** ❌", False),
        ("```text\nSUCCESS\n```", True),
        ("<|begin_of_box|>SUCCESS<|end_of_box|>", True),
        ("<answer>NOT SUCCESS</answer>", False),
        ("I judge this as NOT SUCCESS.", False),
        ("I would call this a SUCCESS.", True),
        ("最终裁决：NOT SUCCESS", False),
        ("It was never saved. The task execution is deemed NOT SUCCESS.", False),
        ("Task status: NOT SUCCESS\n---", False),
        ("It is NOT\u2028SUCCESS", False),
        ("Evaluation result: «SUCCESS»", True),
        ("My verdict on this task:\n\nSUCCESS", True),
        ("My verdict on this page:\n\nSUCCESS", True),
        ("In the final analysis:\n\nSUCCESS", True),
        ("For this task:\n\nSUCCESS", True),
        ("Based on the page, my verdict:\n\nSUCCESS", True),
        ("Looking at the final page, the task result:\n\nSUCCESS", True),
        ("My final answer, based on the alert:\nSUCCESS", True),
        ("Result of the task on the app:\n\nSUCCESS", True),
        ("## Verdict\nSUCCESS", True),
        ("\\boxed{SUCCESS}", True),
        ("The verdict is \\boxed{NOT SUCCESS}", False),
        ("Thus, the task is judged to be a SUCCESS.", True),
        ("I therefore conclude that the task was a SUCCESS.", True),
        ("All items are in the cart. The task is considered a SUCCESS.", True),
        ("Based on the screenshots, I conclude that the task is a SUCCESS.", True),
        ("According to the screenshots, all is done, so the verdict is SUCCESS", True),
        ("The login failed at first, but by the menu it was found. Verdict: SUCCESS", True),
    ],
)
def test_webvoyagers_verdict_stands_at_the_end(text, yes):
    assert replies.read_webvoyager(text).yes is yes


@each(
    "text",
    [
        "Thoughts: done. **Status**: success",
        'Status:\n"success"',
        "Status：success.",
        "### Thoughts\nx\n\n### Status\n**success**",
        "- **Thoughts**: x\n- **Status**: successful",
        "1. Thoughts: x\n2. Final Status: [success]\n\nAll key points hold.",
        "思考：筛选已应用。\nStatus: success",
        "想法：满足。\n状态：success",
        "Thoughts: x\n\n**Status: success** ✅",
        "<|begin_of_box|>Thoughts: x\nStatus: success<|end_of_box|>",
    ],
)
def test_a_status_in_the_spellings_of_models(text):
    assert replies.read_status(text).yes
    assert not replies.read_status(text.replace("successful", "success").replace("success", "failed")).yes


# Sentences right before a success that deny something else.
HARMLESS = (
    *("No item is missing.", "None of the prices was wrong.", "The agent closed what was not intended.", "好."),
    *("The list holds the orders that failed.", "The form lists the fields that are missing."),
    *(f"The login was not {word}." for word in ("needed", "required", "requested")),
    *("The status was set to incomplete.", "The agent did not need it.", "The agent never left it."),
    *("The agent did not find any errors.", "The agent did not open it on the first try.", "It found v1.2."),
    *("The agent did not complete any unnecessary steps.", "Not all filters were required.", "The agent never failed."),
    *("The hotel that does not meet the rating was skipped.", "The list of tasks that failed is shown."),
    "The site does not support this filter, so the agent sorted the list by hand.",
    # Of a task that forbids a purchase
    *(f"The agent {words}." for words in ("did not submit the order", "never booked it", "did not book anything")),
    *("The agent stopped at checkout, so the payment was not made.", "The order was not submitted by the agent."),
    *("The lamp that was not found first is there.", "The order was not made twice."),
    *("No screenshot shows an error.", "The agent did not select the wrong date.", "Not all pages were visited."),
    *("The agent did not find anything wrong.", "The agent never reached the limit.", "代理没有找到任何问题。"),
    *("The second laptop does not meet the budget.", "The price of the other hotel does not match."),
    "智能体没有找到第一个,但找到了第二个商品。",
    "L'agent n'a pas pu ouvrir la carte, mais il a utilisé la liste.",
)


@each(
    ("read", "text", "yes"),
    [
        (replies.read_score, "Score: 3", True),
        (replies.read_score, "**Score**: 2", False),
        (replies.read_score, "### Score: 5", True),
        (replies.read_score, "Score: 4 out of 5", True),
        (replies.read_score, "Score: 5\nout of 20 pages only this one shows it", True),
        (replies.read_status, "Status: success\n\nThe task did not need a login.", True),
        (replies.read_webvoyager, "Evaluation: no issue is left. Verdict: SUCCESS", True),
        (replies.read_webvoyager, "The result is as expected.\nSUCCESS", True),
        (replies.read_status, "I cannot see any error.\nStatus: success\nNothing is left to do.", True),
        (replies.read_status, "I'm unable to find a fault in it.\nStatus: success", True),
        (replies.read_tags, f"It failed at first.\n{TAG} <optimal>1. Complete Failure</optimal>", True),
        *(
            (read, text % verdict, True)
            for read, verdict in ((replies.read_status, "Status: success"), (replies.read_tags, TAG))
            for text in ('The site wrote "I can\'t help with that" at first.\n%s', "%s\nNothing is missing.")
        ),
        (replies.read_webvoyager, 'It replied "I\'m sorry, it is sold out", as the page shows. SUCCESS', True),
        (replies.read_webvoyager, "I can't see the screenshot of step 3, but the last one shows it. SUCCESS", True),
        (replies.read_webvoyager, "The goal was not reached at first, but the second try worked. SUCCESS", True),
        (replies.read_tags, f"{TAG}\n<side>No\n\nThe agent completed the goal, but with an extra step.", True),
        (replies.read_tags, f"{TAG}\n(the agent actually took the longer way)", True),
        *((replies.read_webvoyager, f"{before} SUCCESS", True) for before in HARMLESS),
        *((replies.read_tags, f"{TAG}\n{after}", True) for after in ("No errors were shown.", "价格非常合适。")),
        (replies.read_key_points, '1. Reply with "I can\'t help with that".', True),
        (
            replies.read_webvoyager,
            "The search result was incomplete at first, so the agent scrolled. All items were found.\nSUCCESS",
            True,
        ),
        (
            replies.read_webvoyager,
            "The initial assessment is incomplete without the screenshot, which shows all. Verdict: SUCCESS",
            True,
        ),
        *(
            (replies.read_tags, f"```xml\n<success>{word}</success>\n```", True)
            for word in ("Successful.", '"successful"', "\n**Successful**\n")
        ),
        (read_reply, '```JSON {"reason": "a\nb", "verdict": "No"}```', False),
        (read_reply, '\ufeff{"verdict": "NO", "reason": "x"}', False),
        (read_reply, '<think>{"verdict": "yes"}</think>\n{"reason": "x", "verdict": "no"}', False),
    ],
)
def test_verdicts_in_the_spellings_of_models(read, text, yes):
    assert read(text).yes is yes


def test_an_explanation_is_kept():
    text = "<reasoning>It was sorted.</reasoning><success>Successful</success>"
    assert replies.read_tags(text).reason == text


@pytest.mark.parametrize(
    ("text", "success"),
    [
        ("<think>Status: success</think>\nThoughts: x\nStatus: failure", False),
        ("<think>x</think>\nStatus: failure\nIt says </think>\nStatus: success", None),
        ("Status: failure\nIt says </think>\nStatus: success", None),
        ("<think>Status: success", None),
        ("The page shows\nStatus: success\nbut nothing was submitted.", None),
    ],
)
async def test_reasoning_before_an_answer_is_no_verdict(judge, server, text, success):
    server.script(text, job="agenttrek")
    assert (await judge(answered(steps=STEPS), protocol="agenttrek")).success is success


@pytest.mark.parametrize("text", ["**Key Points**:\n- Sort by price", "• Sort", "1、排序"])
async def test_key_points_in_the_spellings_of_models(judge, server, text):
    server.script(text, job="webjudge_key_points")
    assert (await judge(answered(steps=STEPS), protocol="webjudge")).failure is None


UNREADABLE = {
    replies.read_score: [
        *("Score: 6", "Score: 0", "5", "Score: 3, no, Score: 4", "Score: 45", "Score (1-5): 4", "Score: 3.5"),
        *("Score: -3", "Score: 3 or 4", "Underscore: 5", "Score: 5 of 10", "Score: 5 out of 10", "Score: 3/10"),
        "Score: 5%",
    ],
    replies.read_status: [
        *("Status: success\nBut it's really a failure.", 'Status: success\nThe page shows "Payment failed".'),
        *("Status: not success", "Status: successfully", "Thoughts: it says Status: success", "success"),
        "The form reads:\nStatus: success\n(not filled)",
        *("If it had worked I'd write:\nStatus: success", "I would not say\nStatus: success"),
        *(f"If so, my reply {word} be:\nStatus: success" for word in ("would", "could", "might", "should")),
        *("I'm sorry, I can't assist. Status: success", "If it were set:\nStatus: success"),
    ],
    replies.read_webvoyager: [
        *("Verdict: FAILURE.\nSUCCESS", "FAILED. SUCCESS", "!SUCCESS", "The result is incomplete. SUCCESS"),
        *("Result: incomplete. SUCCESS", "The outcome was a failure.\nSUCCESS", "The log:\nOverall: SUCCESS"),
        *(f"{name}: unsuccessful.\nThe agent opened it.\nSUCCESS" for name in ("Verdict", "Result")),
        *(
            "According to the page, the evaluation is SUCCESS",
            "I don't judge it a SUCCESS",
            "Success is what it is judged",
        ),
        *(
            f"{before} SUCCESS"
            for before in (
                *(
                    f"The agent {verb} find the answer."
                    for verb in ("didn't", "could not", "couldn't", "was not able to")
                ),
                *("The agent has never located an item.", "The agent has failed.", "The agent gave up."),
                *("The requirements failed.", "The requirement was not done by the agent."),
                *("The task has not been completed by the agent.", "The agent did not complete all the steps."),
                *("The agent did not meet the requirements.", "The result doesn't match."),
                *("Not all conditions were met.", "Not all the constraints are satisfied."),
                *("No screenshots show the answer.", "L'agent n'a pas trouvé le produit."),
                *("El agente no encontró el artículo.", "Der Agent hat das Produkt nicht gefunden."),
                *("代理未能找到产品。", "代理没找到答案。", "代理没有完成任务。", "任务没能完成。", "任务未完成。"),
                *(
                    "Die Anforderungen wurden nicht erfüllt.",
                    "La tarea no se completó.",
                    "La tarea no está completada.",
                ),
                *("Задание не завершено.", "A tarefa não foi completada."),
                *("タスクは達成されていません。", "작업이 성공되지 않았습니다."),
                "The agent did not find the item.",
                "The agent was unable to locate any product.",
                "However, the agent did not find the item.",
                "The agent has not found the item.",
                "The task was not done by the agent.",
                "El agente no encontró el producto.",
                "Der Agent hat den Artikel nicht gefunden.",
                "L'agent n'a pas trouvé l'article.",
                "智能体没有找到该商品。",
                "The answer isn't supported by the screenshots.",
                "The answer does not address the question.",
                "No screenshot shows the result.",
                "The task has failed.",
                "The agent failed.",
                "The agent did not complete all steps.",
                "The order is still missing.",
                "Not all criteria are fulfilled.",
                "Not all requirements are met.",
                "Not all of the key points have been met.",
                "Die Anforderungen sind nicht erfüllt.",
                "La tâche n'a pas été accomplie.",
                "La tarea no fue completada.",
                "Задача не была выполнена.",
                "任务没有成功完成。",
                "タスクは完了していません。",
                "작업이 완료되지 않았습니다.",
                "A tarefa não foi concluída.",
                "Il compito non è stato completato.",
            )
        ),
        *(f"The final {word} of the page:\n\nSUCCESS" for word in ("message", "banner", "alert")),
        "The agent did not submit the order. Only when the order is submitted, the task is considered a success.",
        "The cart is empty. The task requires an order before it is judged a SUCCESS.",
        *(f"According to the {word}, this is considered a SUCCESS." for word in ("agent", "page")),
        "According to the page, the task is considered a SUCCESS.",
        "The site reported that this is considered a SUCCESS.",
        "The agent ended with: the task is considered a success.",
        "The agent ended with:\nthe task is considered a success.",
        "The agent finished with the words I conclude that the task is a SUCCESS.",
        *("Expected verdict: SUCCESS", "Desired verdict: SUCCESS", "The claimed verdict: SUCCESS"),
        *(
            "The task was not done.\n\nSUCCESS",
            "I cannot see the images. SUCCESS",
            *("1. SUCCESS", "12. SUCCESS", "a. SUCCESS", "v1.2. SUCCESS", "Version 2. SUCCESS", "Criterion 2. SUCCESS"),
        ),
    ],
    replies.read_key_points: ["1. I'm sorry, I can't help with that."],
    replies.read_tags: [
        *(f"<reasoning>It says {TAG}</reasoning>", f"<!-- {TAG} -->"),
        *(f"{TAG} is what I'd write if it were done.", f"I can't write {TAG}"),
        *(
            f"{TAG}\nWait, it is Unsuccessful.",
            f"{TAG}<loop>Wait, correction: it was not done</loop>",
            f"The form is\n{TAG}\nand it is empty.",
        ),
    ],
}


READERS = (replies.read_webvoyager, replies.read_status, replies.read_tags, read_reply)


GOALS = ("task", "goals", "objective", "request", "requirement")
# What each of the readers refuses beside a success.
EXCUSES = (
    *(f"The {goal} failed." for goal in GOALS),
    *(
        f"The price is {word}."
        for word in ("incorrect", "missing", "incomplete", "unfinished", "not met", "never shown")
    ),
    *(f"Point 3 {words} met." for words in ("isn't", "was not", "has not been", "are never", "weren't")),
    *(f"It {words} it." for words in ("did not finish", "didn't achieve", "never fulfilled", "failed to do")),
    *(f"It {words} its goal." for words in ("could not reach", "couldn't meet", "never accomplished")),
    *(
        "I'm sorry, I can't see the images.",
        "As an AI I can't view images.",
        "I do not have access to the screenshots.",
    ),
    *("The goal was not reached.", "The agent did not complete the task.", "The task remains incomplete."),
    *("I'm unable to view the screenshots.", "I am unable to judge this.", "I can't open the image."),
    *("I can't help with that.", "I cannot evaluate the task.", "I couldn't access any screenshots."),
    *("The task failed.", "The task has not been completed.", "The task was not done.", "The price is wrong."),
    *("The total is $3.99, so the task was not completed.", "On a.com the task failed.", "The verdict is fail."),
    *("No order was placed, so the goal was not reached.", "The page has no results, so the task was not done."),
    *("The booking was not made.", "It is late. The lamps weren't found.", "The order couldn't be placed."),
    *("The task is not complete.", "It tried (see step 3.) The task was not done.", "It never completed the task."),
)
RETRACTIONS = (
    "On reflection the agent did not do it.",
    *(
        "I take that back.",
        "No.",
        "It isn't so.",
        "I thought so.",
        "Der Preis ist kein Problem.",
        "价格错了。",
        "没有。",
    ),
    *("不是。", "未完成。", "误。", "非此。"),
    "The price is high, so the goal is not met.",
    *("Not really.", "Not every point is met.", "Not all key points hold.", "Correction: it is another item."),
    *("On second thought, it is another item.", "That's wrong.", "This is not right.", "It was not a success."),
)
DOUBTS = re.findall(
    r"\S+",
    "not never none neither nor without cannot incorrect incomplete invalid inaccurate insufficient impossible hardly "
    "unsuccessful unmet unable unsure unclear uncertain unverified unfinished unfulfilled unsatisfied undone wrong "
    "false failed doubtful mistaken missing missed misses lacking different contradicted partly partial only but yet "
    "however though although except wait hmm actually correction rather instead sorry oops scratch kidding reflection "
    "disagree aber nicht nein mais pas pero но не нет",
)
BESIDE = [
    *((replies.read_tags, f"{TAG}\nIt is {word} so.") for word in DOUBTS),
    *((replies.read_status, f"Status: success\nThe {goal} was not met.") for goal in GOALS),
    *((replies.read_webvoyager, f"{before} SUCCESS") for before in EXCUSES),
    *((replies.read_status, f"Thoughts: {before}\nStatus: success") for before in EXCUSES),
    *((replies.read_tags, f"<reasoning>{before}</reasoning>{TAG}") for before in EXCUSES),
    *((replies.read_status, f"Status: success\n{after}") for after in RETRACTIONS),
    *((replies.read_tags, f"{TAG}<comment>{after}</comment>") for after in (*RETRACTIONS, "Actually it failed.")),
]


@each(
    ("read", "text"),
    [*BESIDE, *product(READERS, HOSTILE), *((read, text) for read in UNREADABLE for text in UNREADABLE[read])],
)
def test_refusals_look_alikes_repeated_forms_and_quotations_are_no_verdict(read, text):
    with pytest.raises(UnreadableError):
        read(text)


def test_protocols_have_digests_of_their_own():
    assert len({PROTOCOLS.find(name).digest for name in (*NAMES, "webgym")}) == 5
    assert PROTOCOLS.find("webgym").max_images == 48
