"""One policy over several real HTTP servers: who gets which request, and what happens when they fail."""

import asyncio
from dataclasses import replace

import pytest

from tests.agent.policy_host import KEY, PROMPT, Host, balanced
from webgym_cli.agent.client import load_balancer as balance
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind


@pytest.fixture
async def hosts(monkeypatch):
    monkeypatch.setenv("POLICY_HOST_KEY", KEY)
    monkeypatch.setattr(balance, "RETRY_DELAY", 0.01)
    result = [Host(name) for name in "abc"]
    for host in result:
        host.log = result[0].log
        await host.start()
    yield result
    for host in result:
        host.gate.set()
        await host.stop()


@pytest.fixture
async def over(monkeypatch):
    """Return a policy over some hosts; the first probe of one that failed comes after `delay` seconds."""
    policies = []

    def make(*hosts, delay=60, **options):
        monkeypatch.setattr(balance, "PROBE_DELAY", delay)
        monkeypatch.setattr(balance, "MAX_PROBE_DELAY", delay)
        policies.append(balanced(*hosts, **options))
        return policies[-1]

    yield make
    for policy in policies:
        await policy.close()


def counted(policy, host, *names):
    result = policy.servers()[host.url]
    return tuple(result[name] for name in names)


async def together(policy, count):
    return await asyncio.gather(*(policy.reply(PROMPT) for _ in range(count)))


async def failure(requested):
    with pytest.raises(BoundaryError) as caught:
        await requested
    return caught.value


async def test_a_request_goes_where_the_fewest_are_outstanding(hosts, over):
    policy = over(*hosts)
    for host in hosts:
        host.gate.clear()
    first = {asyncio.create_task(policy.reply(PROMPT)) for _ in range(9)}
    for host in hosts:
        await host.until(lambda host=host: host.received == 3)
        assert counted(policy, host, "requests", "outstanding") == (3, 3)
    hosts[1].gate.set()
    while len(first) > 6:
        _, first = await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    hosts[1].gate.clear()
    second = {asyncio.create_task(policy.reply(PROMPT)) for _ in range(3)}
    await hosts[1].until(lambda: hosts[1].received == 6)
    assert [host.received for host in hosts] == [3, 6, 3]
    for host in hosts:
        host.gate.set()
    await asyncio.gather(*first, *second)
    assert [counted(policy, host, "outstanding") for host in hosts] == [(0,)] * 3


async def test_among_equals_it_goes_to_the_one_used_least_recently(hosts, over):
    policy = over(*hosts)
    for _ in range(6):
        await policy.reply(PROMPT)
    assert "".join(hosts[0].log) == "abcabc"
    assert counted(policy, hosts[0], "requests", "failures", "opened", "open") == (2, 0, 0, 0)
    assert counted(policy, hosts[0], "seconds") > (0,)


async def test_a_slow_server_gets_fewer_requests(hosts, over):
    slow, fast = hosts[:2]
    policy = over(slow, fast)
    left = iter(range(120))
    over_and_done = asyncio.Event()

    async def ten_answers_of_the_other():
        then = fast.answered + 10
        await fast.until(lambda: fast.answered >= then or over_and_done.is_set())

    async def work():
        for _ in left:
            await policy.reply(PROMPT)
        over_and_done.set()
        await fast.tell()

    slow.pace = ten_answers_of_the_other
    await asyncio.gather(*(work() for _ in range(4)))
    assert slow.answered + fast.answered == 120
    assert fast.answered >= 3 * slow.answered > 0


def asks(episode):
    return replace(PROMPT, episode=episode)


async def test_an_episode_stays_with_its_server(hosts, over):
    policy = over(*hosts)
    for _ in range(4):
        for episode in ("first", "second", "third"):
            await policy.reply(asks(episode))
    await policy.reply(asks("fourth"))
    assert "".join(hosts[0].log) == "abc" * 4 + "a"


async def test_it_leaves_a_server_that_is_much_busier(hosts, over):
    busy, idle = hosts[:2]
    policy = over(busy, idle)
    await policy.reply(asks("it"))
    busy.gate.clear()
    waiting = []
    for count in range(1, balance.AFFINITY_SLACK + 2):
        waiting.append(asyncio.create_task(policy.reply(asks("it"))))
        await busy.until(lambda count=count: busy.received == 1 + count)
    assert idle.received == 0
    await policy.reply(asks("it"))
    assert (busy.received, idle.received) == (2 + balance.AFFINITY_SLACK, 1)
    await policy.reply(asks("it"))  # where it is now at home
    assert idle.received == 2
    busy.gate.set()
    await asyncio.gather(*waiting)


async def test_it_leaves_a_server_that_is_down_and_stays_away(hosts, over):
    policy = over(*hosts[:2])
    await policy.reply(asks("it"))
    for status in (500, 200):
        hosts[0].status = status
        await policy.reply(asks("it"))
    assert "".join(hosts[0].log) == "aabb"


async def test_a_request_goes_to_the_servers_that_it_names_alone(hosts, over):
    policy, others = over(*hosts), (hosts[1].url, hosts[2].url)
    await policy.reply(asks("it"))
    for _ in range(3):
        await policy.reply(replace(asks("it"), servers=others))  # its own is asleep
    await asyncio.gather(*(policy.reply(replace(PROMPT, servers=others)) for _ in range(4)))
    assert hosts[0].log[0] == "a" and "a" not in hosts[0].log[1:]
    assert set(hosts[0].log[4:]) == {"b", "c"}


async def test_the_servers_of_many_episodes_are_forgotten(hosts, over, monkeypatch):
    monkeypatch.setattr(balance, "_MAX_REMEMBERED_EPISODES", 2)
    policy = over(*hosts)
    for episode in ("first", "second", "third", "first"):
        await policy.reply(asks(episode))
    assert "".join(hosts[0].log) == "abca"
    await policy.reply(asks("third"))
    assert hosts[0].log[-1] == "c"


async def test_a_server_that_dies_loses_no_request_and_comes_back(hosts, over):
    stays, dies = hosts[:2]
    policy = over(stays, dies, delay=0.01)
    stays.gate.clear()
    dies.gate.clear()
    under_way = asyncio.create_task(together(policy, 8))
    await dies.until(lambda: dies.received == 4)
    await dies.stop()
    stays.gate.set()
    dies.gate.set()
    assert len(await under_way) == 8
    assert (stays.answered, dies.answered) == (8, 0)
    assert counted(policy, dies, "failures", "opened", "open") == (4, 1, 1)
    await together(policy, 20)
    assert stays.answered == 28
    await dies.start()
    async with asyncio.timeout(30):
        while not dies.answered:
            await policy.reply(PROMPT)
    await together(policy, 8)
    assert counted(policy, dies, "open", "outstanding") == (0, 0)
    assert dies.answered >= 4


async def test_a_server_that_hangs_is_left_alone(hosts, over):
    hangs, works = hosts[:2]
    policy = over(hangs, works, timeout=3)
    hangs.gate.clear()
    assert (await policy.reply(PROMPT)).text == "Hi."
    await together(policy, 6)
    assert (hangs.received, works.answered) == (1, 7)
    assert counted(policy, hangs, "failures", "opened", "open", "outstanding") == (1, 1, 1, 0)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_refused_request_is_nobody_elses_and_no_fault_of_the_server(hosts, over, status):
    policy = over(*hosts)
    hosts[0].status = status
    assert (await failure(policy.reply(PROMPT))).kind is FailureKind.POLICY_REFUSED
    assert (hosts[1].received, hosts[2].received) == (0, 0)
    assert counted(policy, hosts[0], "requests", "failures", "opened", "open") == (1, 0, 0, 0)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_another_server_repeats_what_one_failed(hosts, over, status):
    policy = over(*hosts)
    hosts[0].statuses = [status]
    assert (await policy.reply(PROMPT)).text == "Hi."
    assert hosts[0].log == ["a", "b"]
    assert counted(policy, hosts[0], "failures", "open") == (1, 1)


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_server_that_refuses_whatever_it_is_asked_draws_no_requests(hosts, over, status):
    policy = over(*hosts, delay=0.01)
    hosts[0].status = hosts[0].health = status
    assert len(await together(policy, 9)) == 9
    await hosts[0].until(lambda: hosts[0].probed >= 3)
    assert hosts[0].received <= 3
    assert counted(policy, hosts[0], "opened", "open") == (1, 1)


@pytest.mark.parametrize("count", [1, 3])
async def test_a_key_that_no_server_takes_fails_at_once(hosts, over, count):
    for host in hosts:
        host.status = host.health = 401
    policy = over(*hosts[:count])
    async with asyncio.timeout(5):
        assert (await failure(policy.reply(PROMPT))).kind is FailureKind.POLICY_UNAVAILABLE
        assert "".join(hosts[0].log) == "abc"[:count]
        assert (await failure(policy.reply(PROMPT))).kind is FailureKind.POLICY_UNAVAILABLE


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_a_single_server_is_asked_again_once_it_answers(hosts, over, status):
    policy = over(hosts[0], delay=0.01)
    hosts[0].statuses, hosts[0].health = [status], status
    request = asyncio.create_task(policy.reply(PROMPT))
    await hosts[0].until(lambda: hosts[0].probed >= 3)
    assert hosts[0].received == 1
    hosts[0].health = 200
    assert (await request).text == "Hi."
    assert counted(policy, hosts[0], "failures", "opened", "open") == (1, 1, 0)


@pytest.mark.parametrize("retries", [3, 0])
async def test_a_request_is_repeated_so_often_and_on_each_server_in_turn(hosts, over, retries):
    policy = over(*hosts[:2], delay=0.001, retries=retries)
    hosts[0].status = hosts[1].status = 500
    assert (await failure(policy.reply(PROMPT))).kind is FailureKind.POLICY_UNAVAILABLE
    assert len(hosts[0].log) == 1 + retries


@pytest.mark.parametrize("started", [False, True])
async def test_when_none_is_left_all_are_named_and_no_key(hosts, over, monkeypatch, started):
    policy = over(*hosts, policy_wait=4 if started else 600, started=started)
    monkeypatch.setattr(balance, "FIRST_WAIT", 600 if started else 4)
    for host in hosts[:2]:
        await host.stop()
    hosts[2].status = hosts[2].health = 503
    assert (await failure(policy.reply(PROMPT))).kind is FailureKind.POLICY_UNAVAILABLE
    message = str(await failure(policy.reply(PROMPT)))
    assert message.startswith("no policy server came back within 4 s: ")
    assert all(host.url in message for host in hosts)
    assert "no, not with [key]" in message and KEY not in message
    async with asyncio.timeout(2):
        await failure(policy.reply(PROMPT))  # the wait counts from the failure: later requests do not wait again


async def test_a_request_waits_for_the_first_that_comes_back(hosts, over):
    policy = over(*hosts[:2], delay=0.01)
    for host in hosts[:2]:
        host.status = host.health = 500
    waiting = asyncio.create_task(together(policy, 5))
    await hosts[1].until(lambda: hosts[1].probed >= 3)
    assert not waiting.done()
    hosts[1].status = hosts[1].health = 200
    assert len(await waiting) == 5
    assert hosts[0].answered == 0


async def test_a_server_that_answers_probes_but_fails_requests_gets_ever_fewer(hosts, over, monkeypatch):
    works, fails = hosts[:2]
    policy = over(works, fails, delay=0.01)
    monkeypatch.setattr(balance, "MAX_PROBE_DELAY", 60)
    fails.status = 500
    async with asyncio.timeout(30):
        while counted(policy, fails, "opened") < (3,):
            await policy.reply(PROMPT)
    assert fails.received == counted(policy, fails, "failures")[0] <= works.answered
    assert policy._servers[1].delay == 0.04


async def test_a_request_that_was_in_flight_brings_a_server_back(hosts, over):
    policy = over(hosts[0], retries=0)
    hosts[0].gate.clear()
    slow = asyncio.create_task(policy.reply(PROMPT))
    await hosts[0].until(lambda: hosts[0].received == 1)
    policy._take_out(policy._servers[0], BoundaryError(FailureKind.POLICY_UNAVAILABLE, "another request failed"))
    waits = asyncio.create_task(policy.reply(PROMPT))
    hosts[0].gate.set()
    assert [(await reply).text for reply in (slow, waits)] == ["Hi.", "Hi."]
    assert hosts[0].probed == 0


async def cancelled(request):
    request.cancel()
    await asyncio.wait([request])
    return request.cancelled()


async def test_a_cancelled_request_gives_its_place_back(hosts, over):
    policy = over(*hosts[:2])
    hosts[0].gate.clear()
    request = asyncio.create_task(policy.reply(PROMPT))
    await hosts[0].until(lambda: hosts[0].received == 1)
    assert await cancelled(request)
    assert counted(policy, hosts[0], "requests", "failures", "outstanding", "open") == (1, 0, 0, 0)


async def test_one_who_waits_for_a_server_can_be_cancelled(hosts, over):
    policy = over(*hosts[:2], retries=0)
    for host in hosts[:2]:
        host.status = 500
        await failure(policy.reply(PROMPT))
    waiting = asyncio.create_task(policy.reply(PROMPT))
    await asyncio.sleep(0)
    assert await cancelled(waiting)


async def test_closing_ends_the_probes(hosts, over):
    policy = over(*hosts[:2], delay=0.01)
    hosts[0].status = hosts[0].health = 500
    await policy.reply(PROMPT)
    await hosts[0].until(lambda: hosts[0].probed >= 2)
    await policy.close()
    assert not [task for task in asyncio.all_tasks() if "_probe_until" in repr(task.get_coro())]
