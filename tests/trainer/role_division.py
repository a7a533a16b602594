import torch

from webgym_cli.config.rl import ActorSettings
from webgym_cli.trainer.engine.batching import MicroBatch, micro_batches, mini_batches


def test_mini_batches_hold_whole_trajectories_and_each_once_an_epoch():
    options = ActorSettings(ppo_mini_batch_size=2, ppo_epochs=3)
    counts = mini_batches([0, 0, 2, 3, 3, 3, 5, 9], options, seed=4)
    assert len(counts) == 9
    for epoch in range(3):
        rows = counts[3 * epoch : 3 * epoch + 3]
        assert sorted(row for part in rows for row in part) == list(range(8))
        for whole in ({0, 1}, {3, 4, 5}):
            assert sum(bool(whole & set(part)) for part in rows) == 1
    assert counts == mini_batches([0, 0, 2, 3, 3, 3, 5, 9], options, seed=4)
    assert counts != mini_batches([0, 0, 2, 3, 3, 3, 5, 9], options, seed=5)
    assert counts[:3] != counts[3:6]


def test_without_a_size_the_batch_is_one_and_order_can_be_kept():
    assert mini_batches([0, 1, 2], ActorSettings(), seed=0) == [(0, 1, 2)]
    options = ActorSettings(ppo_mini_batch_size=2, shuffle=False)
    assert mini_batches([0, 0, 1, 2, 3, 4], options, seed=0) == [(0, 1, 2), (3, 4), (5,)]


def shares(lengths, world, packed, **options):
    given = ActorSettings(**{"ppo_max_token_len_per_gpu": 10, **options})
    rows = list(range(len(lengths)))
    return [micro_batches(rows, lengths, given, packed=packed, rank=rank, world=world) for rank in range(world)]


def test_processes_share_the_rows_in_equally_many_calls():
    lengths = torch.randint(1, 10, (40,)).tolist()
    for packed in (True, False):
        for world in (1, 2, 3):
            parts = shares(lengths, world, packed)
            assert len({len(part) for part in parts}) == 1
            busy = [row for part in parts for micro in part if not micro.idle for row in micro.rows]
            assert sorted(busy) == list(range(40))
            for micro in (micro for part in parts for micro in part):
                own = [lengths[row] for row in micro.rows]
                assert (sum(own) if packed else len(own) * max(own)) <= 10


def test_who_has_nothing_left_repeats_the_shortest_row():
    assert shares([9, 2, 8], 2, True) == [[MicroBatch((1, 2))], [MicroBatch((0,))]]
    assert shares([9, 8, 7], 2, True)[1][1] == MicroBatch((2,), idle=True)
    assert [micro.idle for micro in shares([9, 9, 9], 2, True)[1]] == [False, True]


def test_a_call_holds_at_most_so_many_rows():
    (part,) = shares([1] * 7, 1, True, ppo_micro_batch_size_per_gpu=3)
    assert [len(micro.rows) for micro in part] == [3, 3, 1]
