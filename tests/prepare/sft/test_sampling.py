"""Shares by iteration, weights by position, and the order that the seed decides."""

import hashlib
from fractions import Fraction
from itertools import permutations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webgym_cli.prepare.sft.sampling import compute_quotas, position_key_sql, priority_sql, shuffle_by_seed


@given(
    available=st.dictionaries(st.integers(0, 9), st.integers(0, 50), min_size=1, max_size=6),
    count=st.integers(1, 200),
    power=st.floats(0, 4) | st.sampled_from([500.0, 1e6]),
)
def test_quotas_add_up(available, count, power):
    quotas = compute_quotas(available, count, power)
    assert sum(quotas.values()) == min(count, sum(available.values()))
    assert all(0 <= quotas[iteration] <= available[iteration] for iteration in available)


def test_quotas_by_hand():
    many = dict.fromkeys(range(4), 100)
    assert compute_quotas(many, 30, 2.0) == {0: 1, 1: 4, 2: 9, 3: 16}
    assert compute_quotas(many, 10, 1.0) == {0: 1, 1: 2, 2: 3, 3: 4}
    assert compute_quotas({3: 100, 7: 100}, 1, 0.0) == {3: 0, 7: 1}  # of equal remainders the newest goes first
    for power in (501.0, 1e9):  # no float holds it
        assert compute_quotas({0: 5, 1: 5, 2: 5}, 7, power) == {0: 0, 1: 2, 2: 5}


def test_shuffling_is_seeded_and_a_priority_is_the_md5_of_the_text():
    assert shuffle_by_seed(range(9), "a") == shuffle_by_seed(range(9), "a") != shuffle_by_seed(range(9), "b")
    assert sorted(shuffle_by_seed(range(9), "a")) == list(range(9))
    ((result,),) = duckdb.execute("SELECT " + priority_sql("'7/0/train-0000-00000/3'")).fetchall()
    assert result == int.from_bytes(hashlib.md5(b"7/0/train-0000-00000/3").digest(), "little")


def drawn(draws: int, steps: int, take: int, power: float) -> dict[int, float]:
    """Return how often each position is among the first `take`, over so many draws."""
    order = priority_sql("concat(draw, '/0/x/', position)")
    sql = f"""
        WITH steps AS (
            SELECT draw, position, {steps} AS count, {order} AS priority
            FROM range({draws}) draws(draw), range(1, {steps} + 1) positions(position)
        ), keyed AS (SELECT *, {position_key_sql(power)} AS key FROM steps), taken AS (
            SELECT * FROM keyed QUALIFY row_number() OVER (PARTITION BY draw ORDER BY key, priority) <= {take}
        )
        SELECT position, count(*) / {draws} FROM taken GROUP BY position"""
    return dict(duckdb.sql(sql).fetchall())


def inclusion(weights: list[int], take: int) -> list[float]:
    """Return the exact probability of each item to be among `take` that are drawn one after the other by weight."""
    fractions = [Fraction(0)] * len(weights)
    for order in permutations(range(len(weights)), take):
        left, chance = Fraction(sum(weights)), Fraction(1)
        for item in order:
            chance *= weights[item] / left
            left -= weights[item]
        for item in order:
            fractions[item] += chance
    return [float(chance) for chance in fractions]


@pytest.mark.parametrize(("power", "take"), [(2, 2), (1, 2), (2, 3), (0, 1)])
def test_positions_are_drawn_as_their_weights_say(power, take):
    # one of two positions, weights 1 and 4
    assert inclusion([1, 4], 1) == [0.2, 0.8]
    # two of three with weights 1, 4, 9: the first is in by (1,x), (2,1) or (3,1): 1/14 + 4/14 * 1/10 + 9/14 * 1/5
    assert inclusion([1, 4, 9], 2)[0] == pytest.approx(1 / 14 + 4 / 140 + 9 / 70)
    draws = 20000
    exact = inclusion([(rank + 1) ** power for rank in range(4)], take)
    result = drawn(draws, 4, take, float(power))
    for position, chance in enumerate(exact, 1):
        assert abs(result.get(position, 0.0) - chance) < 4 * (chance * (1 - chance) / draws) ** 0.5


def test_quarters_have_webgyms_shares():
    # the integral of x^2 over each quarter: 1, 7, 19 and 37 of 64
    steps, take = 100_000, 1800
    result = drawn(1, steps, take, 2.0)
    shares = [sum(1 for position in result if (position - 1) * 4 // steps == quarter) / take for quarter in range(4)]
    for share, wanted in zip(shares, (0.016, 0.109, 0.297, 0.578), strict=True):
        assert abs(share - wanted) < 4 * (wanted * (1 - wanted) / take) ** 0.5


@pytest.mark.parametrize("power", [600.0, 1e9])
def test_no_power_overflows(power):
    assert set(drawn(1, 1000, 10, power)) <= set(range(900, 1001))
