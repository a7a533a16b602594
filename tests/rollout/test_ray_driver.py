"""The driver and its ranks: who runs what, when answers are lost, ranks die, and sites shut the browser out."""

import asyncio
from collections import Counter

import pytest

from tests.rollout.in_process import InProcessCluster, Parting
from tests.rollout.scripted import failing
from webgym_cli.agent.client.gate import ServedPolicy
from webgym_cli.errors import BoundaryError, JobError, StoreError, UsageError, VenvError, WebGymError
from webgym_cli.jobs import ray_cluster
from webgym_cli.records.failure import FailureKind
from webgym_cli.rollout import ray_driver, ray_worker
from webgym_cli.rollout.engine import RolloutEngine
from webgym_cli.rollout.ray_driver import RayRunner
from webgym_cli.rollout.resources import PolicyEndpoint
from webgym_cli.store.status import read_status


class Scaled:
    """A world that is rolled out over nodes."""

    def __init__(self, world):
        self.world = world
        self.cluster = InProcessCluster(2)
        self.parting = Parting()

    async def roll(self, episodes, *, sink=None, watch=None, **script):
        world = self.world
        if script:
            self.parting = Parting(**script)
        endpoint = PolicyEndpoint(base_urls=("http://policy/v1",), served=ServedPolicy(name="scripted"))
        sink = sink or world.events.append
        plan = world.plan(episodes)
        opened = RayRunner(world.run, world.settings, self.cluster, endpoint, endpoint, "tools", sink)
        async with opened as runner:
            return await RolloutEngine(plan, world.run, world.settings, runner, sink).execute(watch)

    def events_named(self, name="trajectory"):
        return self.world.events_named(name)

    @property
    def finished(self):
        return Counter(trajectory.episode for trajectory in self.world.stored if trajectory.outcome.failure is None)

    def check_once(self, episodes):
        """Each was finished, and once."""
        assert len(self.finished) == episodes and set(self.finished.values()) == {1}


@pytest.fixture
async def scaled(world, monkeypatch):
    monkeypatch.setattr(ray_cluster, "MARKER_SECONDS", 1.0)
    monkeypatch.setattr(ray_driver, "NEW_NODES_SECONDS", 0.05)
    monkeypatch.setattr(ray_driver, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(ray_worker, "open_runner", lambda *opening: scaled.parting.open(*opening))
    scaled = Scaled(world)
    yield scaled
    await scaled.cluster.bury()


async def test_every_episode_is_run_once_by_one_of_the_ranks(scaled):
    scaled.cluster = InProcessCluster(3)
    summary = await scaled.roll(12)
    scaled.check_once(12)
    assert sum(len(pool.environments) for pool in scaled.parting.pools.values()) == 12
    assert all(pool.environments for pool in scaled.parting.pools.values())
    assert [event["done"] for event in scaled.events_named()] == list(range(1, 13))
    assert (summary["episodes"], summary["owed"], summary["steps"]) == (12, 0, 24)
    assert (summary["ranks"], summary["ranks_lost"]) == (3, 0)
    assert summary["stages"]["store"]["count"] == 12
    assert [status.snapshot["ranks"] for status in read_status(scaled.world.run)] == [3]
    assert sorted(scaled.cluster.killed) == ["n0", "n1", "n2"]
    assert not list(scaled.world.run.root.rglob("marker-*"))


async def test_the_board_shows_all_ranks_as_one(scaled):
    shown = asyncio.Event()

    def sink(event):
        scaled.world.events.append(event)
        if event["event"] == "status" and (event["ranks"], event["running"]) == (2, 4):
            shown.set()

    async def wait(environment):
        await shown.wait()

    await scaled.roll(6, sink=sink, on_reset=wait)
    board = next(event for event in scaled.events_named("status") if event["running"] == 4)
    assert board["transient"] and (board["total"], board["slots"], board["done"]) == (6, 4, 0)
    assert board["queues"]["owed"] == 2 and len(board["episodes"]) == 4


async def test_answers_that_are_lost_change_nothing(scaled):
    scaled.cluster.stutters = True
    await scaled.roll(8, on_reset=failing(times=1, tasks="t1"))
    scaled.check_once(8)
    rows = [event["id"] for event in scaled.events_named()]
    assert sorted(rows) == sorted(trajectory.id for trajectory in scaled.world.stored) and len(set(rows)) == len(rows)


async def test_a_node_that_joins_gets_a_rank(scaled):
    scaled.cluster = InProcessCluster(1)
    joined = asyncio.Event()

    async def wait(environment):
        if scaled.parting.node(environment) == "n1":
            joined.set()
        async with asyncio.timeout(30):
            await joined.wait()

    scaled.world.load("rollout.concurrency=1")
    late = InProcessCluster(2).known[1]
    asyncio.get_running_loop().call_later(0.1, scaled.cluster.known.append, late)
    summary = await scaled.roll(4, on_reset=wait)
    assert (summary["ranks"], summary["owed"]) == (2, 0) and scaled.parting.pools["n1"].environments


async def test_a_rank_that_can_not_work_leaves_it_to_the_others(scaled):
    summary = await scaled.roll(4, broken=VenvError("no Chromium here"))
    assert (summary["owed"], summary["ranks_lost"]) == (0, 1)
    assert "no Chromium here" in scaled.events_named("rank_lost")[0]["message"]


async def test_a_rank_that_is_opened_when_the_command_ends_is_killed(scaled, monkeypatch):
    opening, never = asyncio.Event(), asyncio.Event()

    async def open_slowly(self, *arguments):
        opening.set()
        await never.wait()

    monkeypatch.setattr(ray_worker.RolloutWorker, "open", open_slowly)
    command = asyncio.create_task(scaled.roll(4))
    await opening.wait()
    command.cancel()
    await asyncio.wait((command,))
    assert command.cancelled() and sorted(scaled.cluster.killed) == ["n0", "n1"]


@pytest.mark.parametrize(
    ("error", "kind", "nodes", "words"),
    [
        (UsageError("no such task"), UsageError, 2, "no such task"),
        (StoreError("disk full"), StoreError, 2, "disk full"),
        (ZeroDivisionError("by 0"), WebGymError, 1, r"rank 0 .*: ZeroDivisionError: by 0; no rank is left"),
        (None, UsageError, 0, "no node of the Ray cluster can run a rank"),
    ],
)
async def test_what_concerns_all_ranks_ends_the_command(scaled, error, kind, nodes, words):
    scaled.cluster = InProcessCluster(nodes)
    with pytest.raises(kind, match=words):
        await scaled.roll(4, broken=error)


async def test_the_threshold_counts_over_all_ranks(scaled):
    """Two of eight never end, and no rank alone has six of eight."""

    async def hang(environment):
        if environment.seed in hanging:
            await asyncio.sleep(60)

    scaled.world.load("rollout.completion_threshold=0.75", "rollout.completion_grace=0", "rollout.concurrency=2")
    plan = scaled.world.plan(8)
    hanging = {episode.seed for episode in plan.episodes[:2]}
    summary = await scaled.roll(8, on_step=hang)
    assert (summary["cut"], summary["owed"], summary["failures"]) == (2, 2, {"cancelled": 2})


async def test_a_site_that_is_shut_for_one_rank_is_shut_for_all(scaled):
    async def block(environment):
        if environment.task.id == "t1":
            raise BoundaryError(FailureKind.SITE_BLOCKED, "captcha")

    scaled.world.load("rollout.concurrency=1")
    summary = await scaled.roll(40, on_reset=block)
    attempts = scaled.world.of("t1")
    assert 1 <= len(attempts) <= 2  # each rank may have had one at the same moment
    assert summary["skipped"] == 10 - len(attempts)
    assert summary["skip_reasons"] == {"site1.com is on the blocklist": 10 - len(attempts)}
    assert scaled.events_named("blocked")


async def test_ctrl_c_has_the_ranks_store_what_runs_as_cancelled(scaled):
    running = asyncio.Event()

    async def hang(environment):
        if sum(pool.running for pool in scaled.parting.pools.values()) == 4:
            running.set()
        await asyncio.sleep(60)

    task = asyncio.ensure_future(scaled.roll(6, on_step=hang))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert scaled.world.failures == [FailureKind.CANCELLED] * 4
    assert [event["failure"] for event in scaled.events_named()] == ["cancelled"] * 4
    assert all(environment.closed == 1 for pool in scaled.parting.pools.values() for environment in pool.environments)


async def test_what_a_dead_rank_had_is_finished_by_the_others(scaled):
    """It dies in its second episode; what it finished later is stored by nobody."""
    dying = asyncio.Event()

    async def hang(environment):
        if scaled.parting.node(environment) == "n0" and len(scaled.parting.pools["n0"].environments) == 2:
            scaled.cluster.die("n0")
            dying.set()
            await asyncio.sleep(60)

    async def wait(environment):
        if scaled.parting.node(environment) == "n1":
            await dying.wait()

    scaled.world.load("rollout.concurrency=1")
    summary = await scaled.roll(6, on_step=hang, on_reset=wait)
    scaled.check_once(6)
    assert "n0" in scaled.cluster.killed
    names = sorted(trajectory.id for trajectory in scaled.world.stored)
    assert sorted(event["id"] for event in scaled.events_named()) == names
    assert (summary["collected"], summary["owed"], summary["ranks_lost"]) == (6, 0, 1)
    assert "its node died" in scaled.events_named("rank_lost")[0]["message"]
    await scaled.cluster.bury()
    assert len(scaled.world.stored) == 6


async def test_a_rank_that_hangs_is_killed_and_its_episodes_go_to_the_others(scaled, monkeypatch):
    monkeypatch.setattr(ray_cluster, "SILENCE", 0.5)

    async def hang(environment):
        if scaled.parting.node(environment) == "n0":
            scaled.cluster.hanging.add("n0")

    summary = await scaled.roll(6, on_step=hang)
    scaled.check_once(6)
    assert (summary["owed"], summary["ranks_lost"]) == (0, 1)
    assert "no answer for 0.5 s" in scaled.events_named("rank_lost")[0]["message"]


async def test_the_last_rank_that_dies_ends_the_command(scaled):
    scaled.cluster = InProcessCluster(1)

    async def die(environment):
        if len(scaled.parting.pools["n0"].environments) == 3:
            scaled.cluster.die("n0")
            await asyncio.sleep(60)

    scaled.world.load("rollout.concurrency=1")
    with pytest.raises(JobError, match=r"rank 0 on host0 .* died; no rank is left") as caught:
        await scaled.roll(5, on_step=die)
    assert caught.value.exit_code == 4 and "run the same command again" in caught.value.hint
    assert sum(scaled.finished.values()) == 2
    await scaled.cluster.bury()
    scaled.cluster = InProcessCluster(1)
    assert (await scaled.roll(5, steps=2))["owed"] == 0
    assert set(scaled.finished.values()) == {1}


async def test_a_folder_that_is_not_shared_is_refused(scaled, monkeypatch):
    async def unseen(file):
        return False

    monkeypatch.setattr(ray_cluster, "wait_for_file", unseen)
    with pytest.raises(UsageError, match=r"host0 \(10.0.0.1\) does not see .*run as it is here") as caught:
        await scaled.roll(2)
    assert "every node mounts" in caught.value.hint


async def test_another_version_is_refused(scaled, monkeypatch):
    inspect = ray_worker.RolloutWorker.inspect

    async def older(self, marker):
        return {**await inspect(self, marker), "version": "0.0"}

    monkeypatch.setattr(ray_worker.RolloutWorker, "inspect", older)
    with pytest.raises(UsageError, match=r"host0 has webgym 0.0, this is "):
        await scaled.roll(2)


async def test_keys_travel_in_calls_only(scaled, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("WEBARENA_GITLAB_PASSWORD", "sk-secret too")
    monkeypatch.setenv("WEBARENA_REDDIT_PASSWORD", "of a site that is not there")
    user = 'sites.{0}.accounts.user={{"account": "a", "password_env_var": "WEBARENA_{1}_PASSWORD"}}'
    accounts = [user.format(site, site.upper()) for site in ("gitlab", "reddit")]
    scaled.world.load("sites.gitlab.url=http://gitlab.test", *accounts)
    given = []
    opened = ray_worker.RolloutWorker.open

    async def noted(self, *arguments):
        given.append(arguments[-1])
        return await opened(self, *arguments)

    monkeypatch.setattr(ray_worker.RolloutWorker, "open", noted)
    await scaled.roll(2)
    assert given == [{"OPENAI_API_KEY": "sk-secret", "WEBARENA_GITLAB_PASSWORD": "sk-secret too"}] * 2
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files and not [file for file in files if b"sk-secret" in file.read_bytes()]
