"""While a policy's weights change no request is under way, and each one has a single version."""

import asyncio

from webgym_cli.agent.client.gate import PolicyGate, ServedPolicy
from webgym_cli.records.sampling import PolicyVersion

OLD, NEW = (ServedPolicy(PolicyVersion(number=number, digest="a"), model=f"v{number}") for number in range(2))


async def test_a_change_waits_for_the_requests_under_way_and_holds_the_others():
    gate, order = PolicyGate(OLD), []
    answered = asyncio.Event()

    async def ask(name: str, until: asyncio.Event | None = None):
        async with gate.request() as policy:
            order.append((name, policy.version.number))
            if until:
                await until.wait()

    async def change():
        async with gate.closed():
            order.append("changed")
            gate.policy = NEW

    first = asyncio.create_task(ask("first", answered))
    await asyncio.sleep(0)
    changing = asyncio.create_task(change())
    await asyncio.sleep(0)
    assert not gate.is_open
    second = asyncio.create_task(ask("second"))
    await asyncio.sleep(0.01)
    assert (order, gate.held) == ([("first", 0)], 1)
    answered.set()
    await asyncio.gather(first, changing, second)
    assert order == [("first", 0), "changed", ("second", 1)]
    assert gate.held == 0 and gate.held_seconds >= 0.009


async def test_a_request_that_fails_lets_the_change_go_on():
    gate = PolicyGate(OLD)

    async def fail():
        async with gate.request():
            await asyncio.sleep(0)
            raise ValueError

    failing = asyncio.create_task(fail())
    await asyncio.sleep(0)
    async with asyncio.timeout(5), gate.closed():
        assert isinstance((await asyncio.gather(failing, return_exceptions=True))[0], ValueError)
    assert gate.is_open


async def test_who_watches_hears_of_each_closing():
    gate = PolicyGate()
    watching = asyncio.create_task(gate.wait_closed())
    await asyncio.sleep(0)
    assert not watching.done()
    async with gate.closed():
        await asyncio.wait_for(watching, 5)


async def test_a_policy_that_is_served_beside_the_one_before_leaves_requests_under_way_with_theirs():
    gate, answered = PolicyGate(OLD), asyncio.Event()

    async def ask():
        async with gate.request() as policy:
            await answered.wait()
            return policy.model

    first = asyncio.create_task(ask())
    await asyncio.sleep(0)
    gate.policy = NEW
    second = asyncio.create_task(ask())
    await asyncio.sleep(0)
    assert gate.models == {"v0", "v1"} and gate.held == 0
    answered.set()
    assert await asyncio.gather(first, second) == ["v0", "v1"]
    assert gate.models == {"v1"}
