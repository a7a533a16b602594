"""Sites that shut the browser out are left out: in the same rollout and in later ones, until their time is over."""

from datetime import timedelta

import pytest

from tests.rollout.scripted import ANSWER, ScriptedAgent
from tests.store.test_blocklist import START
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement
from webgym_cli.store.metrics import Blocklist
from webgym_cli.store.run import now


def shuts_out(*sites):
    async def check(environment):
        if any(site in environment.task.start_url for site in sites):
            raise BoundaryError(FailureKind.SITE_BLOCKED, f"{environment.task.start_url} answers with status 403")

    return check


async def test_a_site_that_blocks_is_met_once_and_then_skipped(world, clock):
    world.load("rollout.concurrency=1")
    summary = await world.roll(12, on_reset=shuts_out("site1.com"))
    assert world.pool.started.count("t1") == 1
    assert [one.outcome.failure for one in world.of("t1")] == [FailureKind.SITE_BLOCKED]
    assert (summary["episodes"], summary["failures"], summary["skipped"]) == (9, {"site_blocked": 1}, 2)
    assert summary["skip_reasons"] == {"site1.com is on the blocklist": 2}
    assert (summary["owed"], summary["given_up"]) == (2, 1)
    (event,) = world.events_named("blocked")
    assert (event["site"], event["reason"]) == ("site1.com", "https://site1.com/ answers with status 403")


async def test_a_later_command_leaves_the_site_out_until_its_time_is_over(world, clock):
    world.load("rollout.concurrency=1", "rollout.blocklist_hours=2")
    await world.roll(8, on_reset=shuts_out("site1.com"))
    clock.present = START + timedelta(hours=1.9)
    plan = world.plan(8)
    assert (plan.owed, plan.blocked, plan.given_up, plan.done) == ((), 1, 1, 6)
    clock.present = START + timedelta(hours=2)
    plan = world.plan(8)
    # What met the block is given up; what was only skipped is owed again.
    assert ([owed.episode.task.id for owed in plan.owed], plan.blocked, plan.given_up) == (["t1"], 0, 1)
    summary = await world.roll(8)
    assert (summary["collected"], summary["owed"], summary["given_up"]) == (1, 0, 1)


async def test_no_training_task_of_a_blocked_site_is_drawn(world, clock):
    Blocklist(world.run, 12).add("https://www.site2.com/", "t", "")
    await world.roll(12)
    assert "t2" not in world.pool.started and len(world.pool.started) == 12


async def test_subdomains_are_the_same_site(world, clock):
    world.file.write_text(world.file.read_text().replace("//site3.com", "//shop.site1.com"))
    world.load("rollout.concurrency=1")
    summary = await world.roll(12, on_reset=shuts_out("//site1.com"))
    assert summary["skip_reasons"] == {"site1.com is on the blocklist": summary["skipped"]} and summary["skipped"] > 2


async def test_the_setting_switches_it_off(world):
    world.load("rollout.concurrency=1", "rollout.blocklist_hours=0")
    await world.roll(8, on_reset=shuts_out("site1.com"))
    assert world.pool.started.count("t1") == 2
    assert not world.run.blocklist.exists()


async def test_a_block_is_no_sign_of_something_being_down(world):
    world.load("rollout.concurrency=1", "rollout.blocklist_hours=0")
    with pytest.raises(Exception, match=r"30 .*site_blocked"):
        await world.roll(30, on_reset=shuts_out("site"))


async def test_what_the_judge_calls_blocked_is_blocked(world, clock):
    async def judge(trajectory):
        shut = "t1" in trajectory.task.id
        outcome = {"failure": FailureKind.SITE_BLOCKED, "failure_detail": "a captcha"} if shut else {"success": True}
        return Judgement(trajectory=trajectory.id, models={}, settings_digest="0", judged_at=now(), **outcome)

    world.load("rollout.concurrency=1", "judge.concurrency=1")
    summary = await world.roll(4, agent=ScriptedAgent((ANSWER,)), judge=judge)
    assert (summary["successes"], summary["episodes"]) == (3, 3)
    assert summary["failures"] == {"site_blocked": 1}
    (event,) = world.events_named("blocked")
    assert (event["site"], event["reason"]) == ("a", "a captcha"), "of the last page, not of the start page"
    assert Blocklist(world.run, 12).sites() == {"a"}
    assert world.plan(4).given_up == 1
