"""Tasks by the policy's newest success: their pools, and how many groups each pool gives."""

import tracemalloc
from collections import Counter
from itertools import islice

import pytest

from tests.tasks.lines import webgym, write
from webgym_cli.tasks.draw import POOLS, PassRateSampler, assign_pools
from webgym_cli.tasks.source import hash_text, open_tasks

SHARES = {"unseen": 0.2, "hard": 0.2, "normal": 0.5, "easy": 0.1}


@pytest.fixture
def tasks(tmp_path):
    return open_tasks(str(write(tmp_path / "t", *(webgym(number) for number in range(40)))))


def sampler(tasks, pools, shares=SHARES, chains=1):
    return PassRateSampler(tasks, "7/train/3", None, chains, False, bytes(map(POOLS.index, pools)), shares)


def test_a_task_s_pool_follows_from_its_rate(tasks):
    names = [tasks.task(index).id for index in range(6)]
    rates = {hash_text(name): rate for name, rate in zip(names, [0.0, 0.2, 0.21, 0.79, 0.8, 1.0], strict=True)}
    literals = [POOLS[code] for code in assign_pools(tasks, rates)]
    assert literals[:6] == ["hard", "hard", "normal", "normal", "easy", "easy"] and set(literals[6:]) == {"unseen"}


def test_each_pool_gives_its_share_and_no_task_comes_twice_before_all(tasks):
    pools = ["unseen"] * 10 + ["hard"] * 10 + ["normal"] * 10 + ["easy"] * 10
    drawn = [element.index for element in islice(sampler(tasks, pools).stream(None), 80)]
    assert Counter(pools[index] for index in drawn[:10]) == {"unseen": 2, "hard": 2, "normal": 5, "easy": 1}
    assert Counter(pools[index] for index in drawn[:20]) == {"unseen": 4, "hard": 4, "normal": 10, "easy": 2}
    assert sorted(drawn[:40]) == sorted(drawn[40:]) == list(range(40))


def test_an_empty_pool_leaves_its_share_and_a_pool_without_a_share_comes_last(tasks):
    """Of hard 0.2 and normal 0.5, seven groups are two and five."""
    pools = ["easy"] * 20 + ["hard"] * 10 + ["normal"] * 10
    drawn = islice(sampler(tasks, pools, {"hard": 0.2, "normal": 0.5}).stream(None), 22)
    rows = [pools[element.index] for element in drawn]
    assert Counter(rows[:7]) == {"hard": 2, "normal": 5}
    assert rows[20:] == ["easy", "easy"]


def test_a_task_of_several_chains_comes_in_a_row(tasks):
    drawn = sampler(tasks, ["unseen"] * 40, chains=3).draw(7)
    assert [element.position for element in drawn] == list(range(7))
    assert [drawn[0].index] * 3 == [element.index for element in drawn[:3]]
    assert len({element.seed for element in drawn}) == 7
    assert sampler(tasks, ["unseen"] * 40, chains=3).draw(2, start={None: 5}) == drawn[5:7]


def test_a_task_takes_a_few_numbers():
    """So that a file of 300,000 takes some 20 MB while it is drawn from."""
    many = range(30_000)
    tracemalloc.start()
    drawn = PassRateSampler(many, "x", None, 1, False, bytes(len(many)), SHARES).draw(1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len({element.index for element in drawn}) == 1000
    assert peak < 2_500_000
