"""What a budget admits: begun work is finished, and nothing begins that would not fit."""

import asyncio

import pytest

from webgym_cli.config.cost import CostSettings
from webgym_cli.errors import BudgetSpentError
from webgym_cli.jobs.budget import Budget, Work
from webgym_cli.records.usage import TokenUsage

PRICES = {"m": {"prompt": 1e6, "completion": 1e6}}


def budget(**limits):
    return Budget(CostSettings.model_validate({"prices": PRICES, **limits}), "runs/a")


async def work(of, kind, units, *, calls=0, running=None):
    """Do work of so many units of cost if it is admitted, and return whether it was."""
    async with of.admit(kind) as fits:
        if fits:
            if running is not None:
                running.append(len(running))
            await asyncio.sleep(0)
            of.charge(kind, [(("m",), TokenUsage(prompt=units))], calls)
        return fits


async def test_without_limits_everything_is_admitted():
    of = Budget()
    assert all(await asyncio.gather(*(work(of, Work.EPISODE, 10**9) for _ in range(9))))
    of.require()


@pytest.mark.parametrize(("limit", "done"), [(1, 0), (4, 1), (5, 1), (6, 2), (12, 4), (100, 20)])
async def test_judge_calls_never_pass_the_limit_once_it_is_known_how_many_a_judgement_takes(limit, done):
    of = budget(max_judge_calls=limit)
    fits = await asyncio.gather(*(work(of, Work.JUDGEMENT, 0, calls=3) for _ in range(20)))
    # the first one begins whatever it takes: nobody knows yet
    assert sum(fits) == max(done, 1)
    if sum(fits) < len(fits):
        with pytest.raises(BudgetSpentError) as raised:
            of.require()
        assert raised.value.exit_code == 86


@pytest.mark.parametrize(("limit", "most"), [(1.5, 1), (10, 10), (10.5, 10)])
async def test_cost_leaves_room_for_what_runs(limit, most):
    of = budget(max_cost=limit)
    for _ in range(5):
        await asyncio.gather(*(work(of, Work.EPISODE, 1) for _ in range(4)))
    assert of.spent == most
    with pytest.raises(BudgetSpentError):
        of.require()


async def test_what_earlier_commands_spent_counts():
    of = budget(max_judge_calls=10)
    of.judge_calls, of.largest_judgement = 8, 3
    assert not await work(of, Work.JUDGEMENT, 0, calls=3)
    assert not await work(of, Work.EPISODE, 0)  # nothing else begins either
