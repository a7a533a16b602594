"""Episodes on a site that takes one at a time: none is begun before its turn, and no slot waits for it."""

import asyncio

import pytest

from tests.rollout.conftest import task_fields
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind
from webgym_cli.rollout.queue import EpisodeQueue, ResourceClaims


@pytest.fixture
def on(world):
    """Give the tasks t0, t1, ... their sites."""

    def write(*sites):
        world.write_tasks({"id": f"t{at}", **task_fields(at), "sites": list(mine)} for at, mine in enumerate(sites))

    return write


class Watched:
    """Holds every episode until `most` of them are there at once, and notes which sites were shared."""

    def __init__(self, most):
        self.most, self.there, self.seen, self.shared = most, [], set(), set()
        self.full = asyncio.Event()

    async def on_step(self, environment):
        mine = environment.task.extra["sites"]
        if environment.task.id not in [name for name, _ in self.there]:
            self.there.append((environment.task.id, mine))
        busy = [site for _, sites in self.there for site in sites]
        self.shared |= {site for site in busy if busy.count(site) > 1}
        if len(self.there) == self.most:
            self.full.set()
        await self.full.wait()
        if len(environment.actions) == 1:
            self.there = [entry for entry in self.there if entry[0] != environment.task.id]


async def test_what_needs_a_busy_site_is_passed_over(world, on):
    on(["reddit"], ["reddit"], ["reddit"], ["gitlab", "reddit"], ["gitlab"], ["map"], ["map"])
    world.load("rollout.concurrency=4", "seed=3")
    watched = Watched(4)  # one on reddit, one on gitlab, both on the map: no other four can run at once
    summary = await asyncio.wait_for(world.roll(7, on_step=watched.on_step), 60)
    assert (summary["episodes"], summary["owed"]) == (7, 0)
    assert watched.shared == {"map"}
    assert sorted(world.pool.started) == [f"t{number}" for number in range(7)]


async def test_an_episode_that_fails_frees_its_site_and_is_tried_again(world, on):
    on(["reddit"], ["reddit"])
    failed = []

    async def once(environment):
        if environment.task.id not in failed:
            failed.append(environment.task.id)
            raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, "the reset of reddit failed")

    summary = await asyncio.wait_for(world.roll(2, on_reset=once), 60)
    assert (summary["episodes"], summary["failures"]) == (2, {"environment_unavailable": 2})
    assert world.pool.most == 1


async def test_a_cut_sends_those_home_who_wait_for_a_site(world, on):
    on(["reddit"], ["reddit"], ["reddit"], ["map"])
    world.load("rollout.concurrency=4", "rollout.completion_threshold=0.25", "rollout.completion_grace=0")

    async def stays(environment):
        if environment.task.extra["sites"] == ["reddit"]:
            await asyncio.Event().wait()

    summary = await asyncio.wait_for(world.roll(4, on_step=stays), 60)
    assert (summary["episodes"], summary["cut"], summary["owed"]) == (1, 1, 3)
    assert len(world.pool.environments) == 2


async def test_whoever_waits_gets_what_becomes_free(world, on):
    on(["reddit"], ["reddit"])
    queue = EpisodeQueue(world.plan(2).owed, ResourceClaims(lambda task: task.extra["sites"]))
    first = await queue.take()
    waiting = asyncio.create_task(queue.take())
    for _ in range(3):
        await asyncio.sleep(0)
    assert (waiting.done(), queue.depth()) == (False, 1)
    await queue.finish(first)
    assert {first.episode.task.id, (await waiting).episode.task.id} == {"t0", "t1"}
    waiting = asyncio.create_task(queue.take())
    assert await waiting is None


async def test_queues_that_share_their_claims_hand_no_resource_out_twice(world, on):
    on(["reddit"], ["reddit"])
    claims, owed = ResourceClaims(lambda task: task.extra["sites"]), world.plan(2).owed
    training, testing = EpisodeQueue(owed[:1], claims), EpisodeQueue(owed[1:], claims)
    first = await training.take()
    waiting = asyncio.create_task(testing.take())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    await training.finish(first)
    assert (await waiting).episode.id == owed[1].episode.id


async def test_the_plan_says_how_sites_keep_episodes_apart(world, on):
    on(["map", "reddit"], ["gitlab"])
    world.load("webarena.gitlab.isolation=reset", "webarena.gitlab.reset=/bin/true")
    isolation = {"reddit": "serial", "gitlab": "reset", "map": "parallel"}
    assert world.plan(2).to_json()["sites"] == isolation
    await world.roll(2)
    assert world.plan(2).to_json()["sites"] == {}
