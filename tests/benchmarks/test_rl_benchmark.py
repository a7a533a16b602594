import hashlib
import json
from dataclasses import replace

import pytest

from benchmarks import rl, rl_bench, rl_data
from benchmarks.harness import Series
from benchmarks.rl_bench import Bench
from benchmarks.rl_data import Conversations
from tests.benchmarks.test_gpu_benchmark import by_metric
from tests.stack_fixtures import needs
from webgym_cli.errors import JobError, VenvError

SMALL = Conversations(groups=2, size=4, prompt=12, answer=20, longest=60, vocabulary=50)
TOKENS = replace(rl.QUICK.tokens, prompt=8, answer=80)
TINY = replace(rl.QUICK, conversations=SMALL, answers=replace(SMALL, turns=1), tokens=TOKENS, chunk=10)


def test_a_batch_follows_from_its_seed():
    assert rl_data.rows(SMALL) == rl_data.rows(SMALL)
    assert rl_data.rows(SMALL) != rl_data.rows(replace(SMALL, seed=1))


def test_a_group_begins_with_one_prompt_and_has_its_own_rewards():
    drawn, result = rl_data.rows(SMALL), rl_data.trajectories(SMALL)
    assert [row["number"] for row in drawn] == [entry["number"] for entry in result] == list(range(8))
    for group in range(2):
        own = drawn[4 * group : 4 * group + 4]
        assert len({tuple(row["input_ids"][: row["mask"].index(1)]) for row in own}) == 1
    assert [entry["group"] for entry in result] == [0] * 4 + [1] * 4
    assert len({entry["reward"] for entry in result}) == 8
    assert all(0 <= entry["reward"] < 1 for entry in result)


def test_most_conversations_are_short_and_some_are_long():
    lengths = sorted(len(row["input_ids"]) for row in rl_data.rows(Conversations(groups=50)))
    assert lengths[-1] <= 2048 and lengths[len(lengths) // 2] < 400
    assert lengths[-len(lengths) // 50] > 1000


def test_policy_and_tools_speak_by_turns():
    assert rl_data.spoken(5, 3) == [1, 0, 1, 0, 1]
    assert rl_data.spoken(12, 3) == [1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1]
    assert rl_data.spoken(4, 1) == [1, 1, 1, 1]
    assert rl_data.spoken(2, 3) == [1, 0]


def test_the_files_name_their_own_digest(tmp_path):
    folder = rl_data.write(tmp_path / "batch", SMALL)
    content = (folder / "rows.jsonl").read_bytes()
    assert json.loads((folder / "rl.json").read_text())["digest"] == hashlib.sha256(content).hexdigest()
    assert len(content.splitlines()) == 8
    record = SMALL.to_json()
    assert record["sequences"] == 8
    assert record["tokens"] == sum(len(json.loads(line)["input_ids"]) for line in content.splitlines())


def test_the_sides_take_turns(tmp_path):
    order = []
    bench = Bench(tmp_path, steps=1, repeats=2)
    sides = {name: lambda name=name: order.append(name) or {"turn": len(order)} for name in ("one", "other")}
    assert bench.by_turns(sides) == {"one": [{"turn": 1}, {"turn": 3}], "other": [{"turn": 2}, {"turn": 4}]}
    assert order == ["one", "other", "one", "other"]


def test_sides_differ_in_what_is_compared_and_in_nothing_else(tmp_path, jobs):
    result = jobs()
    rl.measured(tmp_path, TINY, ["packing", "logits"])
    packed, padded, chunked, full = result.configs
    for one in result.configs:
        one["trainer"].pop("output_dir")
    assert packed["model"].pop("use_remove_padding") and not padded["model"].pop("use_remove_padding")
    assert packed == padded
    budget = full["model"].pop("logprob_chunk")
    assert chunked["model"].pop("logprob_chunk") == TINY.chunk < budget
    assert budget == full["actor"]["ppo_max_token_len_per_gpu"]
    assert chunked == full


def test_a_cpus_part_sees_no_gpu_and_has_one_thread(tmp_path, jobs):
    result = jobs()
    rl.measured(tmp_path, TINY, ["packing"])
    assert all(env["CUDA_VISIBLE_DEVICES"] == "" and env["OMP_NUM_THREADS"] == "1" for _, _, env in result.requests)


def test_trl_is_compared_with_both_ways_by_an_interpreter_of_its_own_and_each_row_has_the_versions(tmp_path, jobs):
    result = jobs(cosine=0.99999)
    rows = by_metric(rl.measured(tmp_path, TINY, ["trl"]))
    assert rows["packed update", "update_s"].ratios == Series((3.0,))
    assert rows["padded update", "update_s"].ratios == Series((1.5,))
    assert rows["packed update", "with_old_log_probs_s"].ratios == Series((2.0,))
    assert rows["packed update", "update_peak_mb"].ratios == Series((1.0,))
    for (case, _), row in rows.items():
        assert row.inputs["versions"] == {case.split()[0]: {"torch": "2.11.0"}, "TRL": {"torch": "2.11.0"}}
    assert {python for module, python in result.pythons if module == "rl_trl"} == {"python of TRL"}


def test_what_does_something_else_is_not_compared(tmp_path, jobs):
    jobs(cosine=0.9)
    with pytest.raises(JobError, match="gradient is not ours"):
        rl.measured(tmp_path, TINY, ["trl"])


def test_without_the_role_the_next_command_is_named(monkeypatch, capsys):
    def missing(*_):
        raise VenvError("the train environment has not been set up", hint="webgym setup --role train")

    monkeypatch.setattr(rl_bench, "_role_python", missing)
    assert rl.main(["--quick", "--only", "packing"]) == VenvError.exit_code
    assert "next: webgym setup --role train" in capsys.readouterr().err


@pytest.mark.stack
def test_the_real_trainers_give_rows(tmp_path):
    needs("train")
    # what "packing" compares is in "trl" too; test_gpu_benchmark.py chunks logits
    rows = by_metric(rl.measured(tmp_path, TINY, ["trl"]))
    both = {(case, metric) for case in ("packed update", "padded update") for metric in ("update_s", "update_peak_mb")}
    assert rows.keys() >= both
    assert all(row.values.median > 0 and row.baseline_values.median > 0 for row in rows.values())
    equal = {"cosine": 1.0, "length_ratio": 1.0}
    assert rows["packed update", "update_s"].inputs["gradients"] == pytest.approx(equal, rel=1e-3)
