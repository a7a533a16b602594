import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import rl, rl_bench, rl_data
from benchmarks.harness import Series
from benchmarks.rl_bench import Bench
from benchmarks.rl_data import Conversations
from benchmarks.rl_gpu import MODELS, peak, step_flops
from tests.stack_fixtures import needs
from webgym_cli.errors import JobError, VenvError

SMALL = Conversations(groups=2, size=4, prompt=12, answer=20, longest=60, vocabulary=50)
TINY = replace(
    rl.QUICK,
    conversations=SMALL,
    answers=replace(SMALL, turns=1),
    tokens=replace(rl.QUICK.tokens, prompt=8, answer=20),
    chunk=4,
)


class Jobs:
    """Stands for the role: answers each job with figures, and keeps what was asked."""

    def __init__(self, gpu="", cosine=1.0):
        self.gpu, self.cosine = gpu, cosine
        self.asked, self.configs = [], []

    def __call__(self, module, job, python, **environment):
        self.asked.append((module, job, environment))
        if job.get("what") == "models":
            return {"gpu": self.gpu}
        figures = {"seconds": 2.0, "peak_mb": 1024.0, "loaded_mb": 300.0, "held_mb": 512.0}
        if module == "rl_trl":
            return {**figures, "seconds": 6.0, "gradients": [{"cosine": 1.0}, {"cosine": self.cosine}]}
        self.configs.append(json.loads(Path(job["config"]).read_text()))
        seconds = 2.0 if self.configs[-1]["model"]["use_remove_padding"] else 4.0
        return {**figures, "seconds": seconds, "old_log_prob": 1.0, "adv": 0.1, "attention": "sdpa"}


@pytest.fixture
def jobs(monkeypatch):
    def install(**given):
        made = Jobs(**given)
        monkeypatch.setattr(rl_bench, "program", made)
        monkeypatch.setattr(rl_bench, "role_python", lambda *_: "python")
        return made

    return install


def by_metric(rows):
    return {(row.case, row.metric): row for row in rows}


def test_a_batch_follows_from_its_seed():
    assert rl_data.rows(SMALL) == rl_data.rows(SMALL)
    assert rl_data.rows(SMALL) != rl_data.rows(replace(SMALL, seed=1))


def test_a_group_begins_with_one_prompt_and_has_its_own_rewards():
    drawn, told = rl_data.rows(SMALL), rl_data.trajectories(SMALL)
    assert [row["number"] for row in drawn] == [entry["number"] for entry in told] == list(range(8))
    for group in range(2):
        own = drawn[4 * group : 4 * group + 4]
        assert len({tuple(row["input_ids"][: row["mask"].index(1)]) for row in own}) == 1
    assert [entry["group"] for entry in told] == [0] * 4 + [1] * 4
    assert len({entry["reward"] for entry in told}) == 8
    assert all(0 <= entry["reward"] < 1 for entry in told)


def test_most_conversations_are_short_and_some_are_long():
    lengths = sorted(len(row["input_ids"]) for row in rl_data.rows(Conversations(groups=50)))
    assert lengths[-1] <= 2048
    assert lengths[len(lengths) // 2] < 400
    assert lengths[-len(lengths) // 50] > 1000


def test_policy_and_tools_speak_by_turns():
    assert rl_data.spoken(5, 3) == [1, 0, 1, 0, 1]
    assert rl_data.spoken(12, 3) == [1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1]
    assert rl_data.spoken(4, 1) == [1, 1, 1, 1]
    assert rl_data.spoken(2, 3) == [1, 0]


def test_the_files_name_their_own_digest(tmp_path):
    folder = rl_data.write(tmp_path / "batch", SMALL)
    content = (folder / "rows.jsonl").read_bytes()
    head = json.loads((folder / "rl.json").read_text())
    assert head["digest"] == hashlib.sha256(content).hexdigest()
    assert len(content.splitlines()) == 8
    told = SMALL.to_json()
    assert told["sequences"] == 8
    assert told["tokens"] == sum(len(json.loads(line)["input_ids"]) for line in content.splitlines())


def test_the_peak_is_that_of_the_devices_name():
    assert peak("NVIDIA H200") == peak("NVIDIA H100 80GB HBM3") == 989e12
    assert peak("NVIDIA A100-SXM4-80GB") == 312e12
    assert peak("NVIDIA B200") == 2250e12
    assert peak("NVIDIA GeForce RTX 4090") is None


def test_the_arithmetic_of_an_update():
    sizes = {
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 100,
    }
    # a layer: q and o 64 each, k and v 8 x 4 each, three of 8 x 16: 576; two layers 1,152
    # sequences of 3 and 1: 4 tokens look at 6 + 1 places, 4 · 8 FLOP a layer for each; 2 tokens are trained
    assert step_flops(sizes, [3, 1], 2) == 3 * (2 * 1152 * 4 + 4 * 2 * 8 * 7 + 2 * 8 * 100 * 2)


def test_the_weights_that_count_are_those_of_the_published_models():
    # without embeddings: 0.36 and 1.31 billion
    for name, billions in (("Qwen2.5-0.5B", 0.358), ("Qwen2.5-1.5B", 1.310)):
        nothing_seen = step_flops({**MODELS[name], "vocab_size": 0}, [1], 0)
        assert nothing_seen / 6e9 == pytest.approx(billions, rel=2e-3)


def test_the_sides_take_turns(tmp_path):
    order = []
    bench = Bench(tmp_path, steps=1, repeats=2)
    sides = {name: lambda name=name: order.append(name) or {"turn": len(order)} for name in ("one", "other")}
    assert bench.by_turns(sides) == {"one": [{"turn": 1}, {"turn": 3}], "other": [{"turn": 2}, {"turn": 4}]}
    assert order == ["one", "other", "one", "other"]


def test_sides_differ_in_what_is_compared_and_in_nothing_else(tmp_path, jobs):
    asked = jobs()
    rl.measured(tmp_path, TINY, ["packing", "logits"])
    packed, padded, chunked, full = asked.configs
    for one in asked.configs:
        one["trainer"].pop("output_dir")
    assert packed["model"].pop("use_remove_padding") and not padded["model"].pop("use_remove_padding")
    assert packed == padded
    budget = full["actor"].pop("logprob_chunk")
    assert chunked["actor"].pop("logprob_chunk") == TINY.chunk < budget
    assert budget == full["actor"]["ppo_max_token_len_per_gpu"]
    assert chunked == full


def test_a_cpus_part_sees_no_gpu_and_has_one_thread(tmp_path, jobs):
    asked = jobs()
    rl.measured(tmp_path, TINY, ["packing"])
    assert all(env["CUDA_VISIBLE_DEVICES"] == "" and env["OMP_NUM_THREADS"] == "1" for _, _, env in asked.asked)


def test_trl_is_compared_with_both_ways(tmp_path, jobs):
    jobs(cosine=0.99999)
    rows = by_metric(rl.measured(tmp_path, TINY, ["trl"]))
    assert rows["packed update", "update_s"].ratios == Series((3.0,))
    assert rows["padded update", "update_s"].ratios == Series((1.5,))
    assert rows["packed update", "with_old_log_probs_s"].ratios == Series((2.0,))
    assert rows["packed update", "update_peak_mb"].ratios == Series((1.0,))


def test_what_does_something_else_is_not_compared(tmp_path, jobs):
    jobs(cosine=0.9)
    with pytest.raises(JobError, match="gradient is not ours"):
        rl.measured(tmp_path, TINY, ["trl"])


def test_without_a_gpu_its_part_is_left_out_with_a_word(tmp_path, jobs, capsys):
    jobs()
    assert rl.measured(tmp_path, TINY, ["gpu"]) == []
    assert "no GPU in the train role" in capsys.readouterr().err


def test_a_gpu_gives_tokens_memory_and_its_share_of_the_peak(tmp_path, jobs):
    asked = jobs(gpu="NVIDIA H200")
    models = ("Qwen2.5-0.5B", "Qwen2.5-1.5B")
    rows = by_metric(rl.measured(tmp_path, replace(TINY, on_gpu=SMALL, gpu_models=models), ["gpu"]))
    assert {case for case, _ in rows} == set(models)
    drawn = rl_data.rows(SMALL)
    lengths, trained = [len(row["input_ids"]) for row in drawn], sum(sum(row["mask"]) for row in drawn)
    tokens = rows["Qwen2.5-0.5B", "tokens_per_s"]
    assert tokens.values == Series((sum(lengths) / 2.0,))
    assert tokens.ratios == Series((2.0,))
    assert rows["Qwen2.5-0.5B", "peak_gb"].values == Series((1.5,))
    shape = {**rl.COMMON, **MODELS["Qwen2.5-0.5B"]}
    share = step_flops(shape, lengths, trained) / 2.0 / 989e12
    assert rows["Qwen2.5-0.5B", "bf16_share"].values.values == pytest.approx((share,))
    assert tokens.inputs["gpu"] == "NVIDIA H200"
    assert all("CUDA_VISIBLE_DEVICES" not in env for _, job, env in asked.asked if job["what"] == "update")


def test_an_unknown_gpu_has_no_share(tmp_path, jobs):
    jobs(gpu="Something new")
    rows = rl.measured(tmp_path, replace(TINY, on_gpu=SMALL), ["gpu"])
    assert {row.metric for row in rows} == {"tokens_per_s", "peak_gb"}


def test_without_the_role_the_next_command_is_named(monkeypatch, capsys):
    def missing(*_):
        raise VenvError("the train environment has not been set up", hint="webgym setup --role train")

    monkeypatch.setattr(rl_bench, "role_python", missing)
    assert rl.main(["--quick", "--only", "packing"]) == VenvError.exit_code
    assert "next: webgym setup --role train" in capsys.readouterr().err


@pytest.mark.stack
def test_the_real_trainers_give_rows(tmp_path):
    needs("train")
    rows = by_metric(rl.measured(tmp_path, TINY, ["logits", "trl"]))  # what "packing" compares is in "trl" too
    both = {(case, metric) for case in ("packed update", "padded update") for metric in ("update_s", "update_peak_mb")}
    assert rows.keys() >= both | {("chunked logits", "update_s"), ("chunked logits", "update_peak_mb")}
    assert all(row.values.median > 0 and row.baseline_values.median > 0 for row in rows.values())
    assert rows["packed update", "update_s"].inputs["gradients"] == pytest.approx(
        {"cosine": 1.0, "length_ratio": 1.0}, rel=1e-3
    )
    # all logits at once: 152,000 of them, 4 bytes each, for each token, more than once
    logits = rows["chunked logits", "update_peak_mb"]
    whole = logits.inputs["batch"]["trained_tokens"] * rl.VOCABULARY * 4 / 2**20
    assert logits.baseline_values.median > whole
    assert logits.ratios.median > 1
