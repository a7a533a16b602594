"""New tasks from a scripted model over real HTTP: each filter, what goes on after an end, and what is stored."""

import json

import pytest

from tests.curriculum.generating import FAILED, SHOP, failed_run
from tests.records.builders import UNSOLVED, trajectory
from tests.rewards.orm_server import MODEL, OrmServer
from tests.rewards.scripted_judge import ScriptedReply
from webgym_cli.config.load import load
from webgym_cli.curriculum.execute import TaskGeneration, format_generation_summary
from webgym_cli.curriculum.filters import Rejection
from webgym_cli.curriculum.journal import AnswerJournal, StoredAnswer
from webgym_cli.curriculum.plan import plan_generation
from webgym_cli.errors import WebGymError
from webgym_cli.records.task import Task
from webgym_cli.store.buffer import append
from webgym_cli.store.index.query import open_index
from webgym_cli.tasks.expand import follow_template

DOWN = ScriptedReply(status=500)


def proposed(*tasks):
    return json.dumps({"tasks": tasks})


def verdict(yes):
    return json.dumps({"reason": "because", "verdict": "yes" if yes else "no"})


@pytest.fixture
def run(tmp_path):
    return failed_run(tmp_path)


@pytest.fixture
def generation(run, tmp_path, server):
    """Make a command at work on the run, one request at a time and about the shop alone."""

    def make(*overrides, file="asked.jsonl", sink=lambda event: None, values=None, on_request=print):
        texts = ["generate.retries=0", "generate.concurrency=1", "generate.requests_per_site=1", "orm.retries=0"]
        settings = load(overrides=[*texts, f"generate.base_url={server.base_url}", *overrides], run_config=run.config)
        with open_index(run) as index:
            plan = plan_generation(run, settings, index, has_critic=values is not None)
        journal = AnswerJournal(tmp_path / file)
        return TaskGeneration(plan, settings.generate, settings.orm, journal, sink, values, on_request)

    return make


def reasons(work):
    return {one.instruction: one.rejection and one.rejection.value for one in work.candidates}


async def test_known_and_repeated_tasks_go_and_the_others_are_asked_about(generation, server):
    server.script(proposed("Which museum is this?"), job="generate")
    server.script(
        proposed(FAILED[0].upper(), "Track a parcel!", "Show my orders", "show  my orders.", " ", "x" * 1001),
        job="generate",
    )
    work = generation()
    summary = await work.execute()
    assert reasons(work) == {
        "Which museum is this?": None,
        FAILED[0].upper(): "known_task",
        "Track a parcel!": "known_task",
        "Show my orders": None,
        "show my orders.": "repeated",
        "": "malformed",
        "x" * 1001: "malformed",
    }
    assert (summary["proposed"], summary["kept"], summary["rejected"]["known_task"]) == (7, 2, 2)
    assert summary["kept_by_site"] == {"museum.test": 1, "shop.test:7770": 1}
    assert [request.job for request in server.requests] == ["generate", "generate", "feasible", "feasible"]
    assert "2 new tasks of 7 proposed (2 malformed, 2 known_task, 1 repeated)" in format_generation_summary(summary)


async def test_on_a_site_with_checks_a_task_without_one_goes(generation, server, run):
    record = {"instruction": "Delete {user}.", "check": "gone", "site": "desk", "environment": "web", "start_url": SHOP}
    failed = follow_template(Task(id="x", extra={"template": {"id": "delete", **record}}), "Delete Ann.")
    append(run, trajectory(9, task=failed, instruction=failed.instruction, outcome=UNSOLVED))
    server.script(proposed("Delete Ben.", "Delete Ann.", "Look around."), proposed(), proposed(), job="generate")
    work = generation()
    await work.execute()
    assert reasons(work) == {"Delete Ben.": None, "Delete Ann.": "known_task", "Look around.": "no_check"}
    (kept,) = work.kept
    assert (kept.task.check, kept.task.extra["user"]) == ("gone", "Ben")
    assert server.requests[0].data["forms"] == ["Delete {user}."]


async def test_a_request_shows_the_seeds_and_samples_as_it_is_told(generation, server):
    await generation("generate.top_p=0.9", "generate.tasks_per_request=4").execute()
    museum, shop = (request for request in server.requests if request.job == "generate")
    assert (museum.data["tasks"], sorted(shop.data["tasks"])) == (["Name the oldest picture"], sorted(FAILED))
    assert (shop.data["count"], shop.request["temperature"], shop.request["top_p"]) == (4, 1.0, 0.9)
    assert shop.request["response_format"]["json_schema"]["name"] == "generate"
    assert next(request for request in server.requests if request.job == "feasible").request["temperature"] == 0.0


async def test_the_critic_sees_task_and_first_page_and_keeps_what_is_neither_hard_nor_easy(generation, server):
    names = ["One", "Two", "Three", "Four", "Five"]
    server.script(proposed("Which museum is this?"), proposed(*names), job="generate")
    async with OrmServer() as orm:
        shares = [(1, 3), (0.04, 0.96), (0.05, 0.95), (0.75, 0.25), (0.76, 0.24)]
        orm.answers.extend({"YES": yes / 8, "NO": no / 8} for yes, no in shares)
        orm.answers.append({"Maybe": 0.9})
        work = generation(f"orm.base_url={orm.base_url}", f"orm.model={MODEL}")
        await work.execute()
        assert list(reasons(work).values()) == [None, "too_hard", None, None, "too_easy", "critic_gave_no_answer"]
        assert work.candidates[0].probability == pytest.approx(0.25)
        assert "The User Intent:\nTwo\n\nAction History:\n\n" in orm.prompts[2]
        assert "title: The shop" in orm.prompts[2]
        before = len(orm.requests)
        again = generation(f"orm.base_url={orm.base_url}", f"orm.model={MODEL}", "generate.critic_window=[0,0.5]")
        await again.execute()
        assert len(orm.requests) == before + 1  # only what it gave no answer to
        assert list(reasons(again).values()) == [None, None, None, "too_easy", "too_easy", "too_easy"]
    tasks = [request.data["task"] for request in server.requests if request.job == "feasible"]
    assert tasks == ["Which museum is this?", "Two", "Three", "One"]


async def test_the_policy_s_own_critic_is_asked_about_a_round_at_once(generation, server):
    server.script(proposed("Which museum is this?"), proposed("One", "Two", FAILED[0]), job="generate")
    calls = []

    async def values(candidates):
        calls.append([one.instruction for one in candidates])
        return [(0.04, 0.8), (0.9, 0.05), (0.76, 0.8)]  # by two heads: one within the window is enough

    work = generation("orm.model=an-orm", values=values)
    assert (calls, (await work.execute())["critic"]) == ([["Which museum is this?", "One", "Two"]], "critic")
    assert list(reasons(work).values()) == ["too_hard", None, "too_easy", "known_task"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (verdict(False), Rejection.INFEASIBLE),
        ("yes", Rejection.FEASIBILITY_UNREADABLE),
        ('{"verdict": "yes"}', Rejection.FEASIBILITY_UNREADABLE),
        (f"Sure: {verdict(True)}", Rejection.FEASIBILITY_UNREADABLE),
        (ScriptedReply(verdict(True), finish_reason="length"), Rejection.FEASIBILITY_UNREADABLE),
        (DOWN, Rejection.FEASIBILITY_SILENT),
    ],
    ids=str,
)
async def test_only_a_yes_that_can_be_read_lets_a_task_pass(generation, server, reply, expected):
    server.script(proposed("Which museum is this?"), proposed("One", "Two"), job="generate")
    server.script(verdict(True), reply, verdict(True), job="feasible")
    work = generation()
    await work.execute()
    assert [one.rejection for one in work.candidates] == [None, expected, None]
    assert work.candidates[1].to_json()["detail"]
    again = generation()
    await again.execute()
    silent = expected is Rejection.FEASIBILITY_SILENT
    assert [one.rejection for one in again.candidates] == [None, None if silent else expected, None]
    assert sum(request.job == "generate" for request in server.requests) == 2


async def test_what_was_answered_before_an_end_is_not_asked_again(generation, server):
    server.script(proposed("Which museum is this?"), DOWN, job="generate")

    async def again(*overrides):
        work = generation("generate.feasibility=false", *overrides)
        return await work.execute(), reasons(work)

    twice = "generate.requests_per_site=2"
    summary, _ = await again(twice)
    assert (summary["unanswered"], summary["asked"]) == (1, 4)
    summary, second = await again(twice)
    assert summary["asked"] == 1
    summary, third = await again(twice)
    assert (summary["asked"], summary["calls"]) == (0, 0)
    assert third == second
    assert (await again("generate.model=another"))[0]["asked"] == 2
    assert {request.job for request in server.requests} == {"generate"}, "whether a task can be done is not asked"


async def test_a_server_that_is_down_ends_it(generation, server):
    server.script(DOWN, DOWN, job="generate")
    spent = []
    with pytest.raises(WebGymError, match="2 answers in a row can't be used") as error:
        await generation(on_request=spent.append).execute()
    assert "what was answered stays" in error.value.hint
    assert [request.calls for request in spent] == [1, 1]


async def test_no_further_round_once_as_many_as_wanted_are_kept(generation, server):
    server.script(proposed("Which museum is this?"), proposed("One", "Two"), job="generate")
    work = generation("generate.requests_per_site=5", "generate.tasks=2")
    summary = await work.execute()
    assert (summary["asked"], summary["kept"], summary["rejected"]["surplus"]) == (2, 2, 1)
    assert list(reasons(work).values()) == [None, None, "surplus"]


def test_a_damaged_line_of_the_journal_is_asked_again(tmp_path):
    path = tmp_path / "asked.jsonl"
    AnswerJournal(path).put(StoredAnswer(key="a", tasks=("One",)))
    with path.open("a") as file:
        file.write('{"key": 3}\n{"key": "b", "feasi')
    journal = AnswerJournal(path)
    assert journal.get("a") == StoredAnswer(key="a", tasks=("One",))
    journal.put(StoredAnswer(key="b", feasible=False))
    assert AnswerJournal(path).get("b") == StoredAnswer(key="b", feasible=False)
