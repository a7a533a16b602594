"""The ledger's line of a batch, and the batch that is made of a line again."""

import json
from contextlib import contextmanager

from tests.prepare.rl_builders import (
    CALL,
    changed_generation,
    episode,
    served,
    settings,
    store,
    talk,
    write_plan,
)
from tests.records.builders import CRASHED, UNSOLVED
from webgym_cli.loop.preparation import describe_batch
from webgym_cli.prepare.rl.data import BATCH
from webgym_cli.prepare.rl.plan import plan_batch
from webgym_cli.records.batch import BatchGroup, DroppedGroup
from webgym_cli.records.sampling import PolicyVersion
from webgym_cli.records.trajectory import Outcome
from webgym_cli.store.index.query import open_index
from webgym_cli.store.metrics import append_batch, read_batches, scan_batches

CHAINS = "agent.num_chains=2"


@contextmanager
def planned(run, *overrides, selection=None):
    """Give the plan of the current batch, or of a selection, and its line."""
    with_ = settings("model", CHAINS, *overrides)
    with open_index(run, as_of=selection.as_of if selection else None) as index:
        plan = plan_batch(run, with_, index, group_relative=True, selection=selection)
        yield plan, describe_batch(BATCH, plan, run, with_, index, selection)


def of_version(value, number):
    """Return a trajectory whose steps that policy version produced."""
    version = PolicyVersion(number=number, digest=f"weights {number}")
    for index in range(len(value.steps)):
        value = changed_generation(value, index, policy_version=version)
    return value


def fill(run, tokens):
    """Three groups of two: one to learn from, one of equal rewards, one half of which failed."""
    write_plan(run, *(episode(number, f"q{number // 2}", position=number) for number in range(6)))
    outcomes = [{}, {"outcome": UNSOLVED}, {}, {}, {"outcome": CRASHED}, {"outcome": UNSOLVED}]
    store(run, *(of_version(served(talk(number, **outcomes[number]), tokens), 0) for number in range(6)))


def test_it_names_the_groups_what_is_dropped_and_how_far_the_files_were_read(run, tokens):
    fill(run, tokens)
    with planned(run) as (plan, line):
        named = [f"train-0000-0000{number}" for number in range(6)]
        whole, half = BatchGroup(id=named[0], trajectories=named[:2]), BatchGroup(id=named[4], trajectories=named[5:])
        equal = DroppedGroup(id=named[2], reason="no_variance", trajectories=named[2:4], rewards=(1.0, 1.0))
        failed = DroppedGroup(id=named[4], reason="failure", trajectories=named[4:5], rewards=(None,))
        assert (line.groups, line.dropped) == ((whole, half), (equal, failed))
        assert (line.parent, line.mode, line.iterations, line.episodes) == (0, "sync", (0,), 4)
        assert line.plan_digest == plan.digest()
        part = run.part("train", 0)
        assert line.as_of == {str(part.relative_to(run.root)): part.stat().st_size}


def test_what_is_left_out_of_a_group_for_one_reason_is_one_entry(run, tokens):
    write_plan(run, *(episode(number, "q0", position=number) for number in range(5)))
    outcomes = [{"outcome": CRASHED}, {"outcome": Outcome()}, {"outcome": CRASHED}, {}, {"outcome": UNSOLVED}]
    store(run, *(served(talk(number, **outcomes[number]), tokens) for number in range(5)))
    with planned(run, "agent.num_chains=5") as (_, line):
        left_out = {group.reason: group.trajectories for group in line.dropped}
        assert [len(left_out), len(line.dropped)] == [2, 2]
        assert left_out["failure"] == ("train-0000-00000", "train-0000-00002")


def test_the_staleness_is_that_of_each_sampled_token(run, tokens):
    write_plan(run, *(episode(number, "q0", position=number) for number in range(2)))
    old, new = served(talk(0), tokens), served(talk(1, CALL, outcome=UNSOLVED), tokens)
    store(run, of_version(old, 0), of_version(new, 2))
    count = [sum(len(step.generation.token_ids) for step in trajectory.steps) for trajectory in (old, new)]
    with planned(run) as (_, line):
        assert line.staleness == {-2: count[1], 0: count[0]}  # the run is still at version 0


def test_the_same_batch_is_one_line_and_another_one_replaces_it(run, tokens):
    fill(run, tokens)
    for _ in range(2):
        with planned(run) as (_, line):
            append_batch(run, line)
    assert len(list(scan_batches(run))) == 1
    with planned(run, "rl.data.filter_groups.enable=false") as (_, other):
        append_batch(run, other)
    with run.batches.open("a") as file:
        file.write('{"torn')
    assert len(list(scan_batches(run))) == 2
    assert read_batches(run) == {0: other}


def test_a_line_makes_the_same_batch_again_whatever_was_stored_since(run, tokens):
    fill(run, tokens)
    with planned(run) as (plan, line):
        before, digest = list(plan.members()), plan.digest()
    later = served(talk(4, attempt=1, id="train-0000-00004.1", episode="train-0000-00004"), tokens)
    store(run, later)
    with planned(run) as (plan, changed):
        assert plan.digest() != digest and changed.plan_digest != line.plan_digest
    with planned(run, selection=line.selection) as (plan, again):
        assert (list(plan.members()), plan.digest()) == (before, digest)
        assert (again.groups, again.dropped, again.mode) == (line.groups, line.dropped, "async")


def test_a_group_that_is_too_old_is_masked_and_counts_for_nothing(run, tokens):
    fill(run, tokens)
    with planned(run) as (_, line):
        chosen = line.selection
    late = chosen.model_copy(update={"stale": frozenset(line.groups[0].trajectories)})
    with planned(run, selection=late) as (plan, again):
        assert [group.reason for group in again.dropped] == ["stale", "no_variance", "failure"]
        assert plan.counts.masked["stale"] == 2
    assert json.loads(again.model_dump_json(by_alias=True))["schema"] == 1
    assert again.selection == late
