"""The benchmark of GPUs: its arithmetic, its baselines, and a real run of its tiny shapes."""

import ast
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import gpu, gpu_cases, rl_data
from benchmarks.gpu import regressions, save
from benchmarks.gpu_cases import QUICK, TINY, WHOLE, Device, Measurement, too_large
from benchmarks.harness import ROOT, Row, Series
from benchmarks.model_shapes import PUBLISHED
from benchmarks.rl import VOCABULARY
from benchmarks.rl_bench import Bench
from benchmarks.rl_gpu import peak, step_flops
from tests.stack_fixtures import needs

H200 = Device("NVIDIA H200", 141 * 10**9)
CPU = Device("", 0)


def measure(folder, sizes, device, until=None):
    return Measurement(Bench(folder, sizes.steps, sizes.repeats, until), sizes, device)


def measured(folder, sizes, device):
    return measure(folder, sizes, device).rows()


def by_metric(rows):
    return {(row.case, row.metric): row for row in rows}


def row(value, metric="tokens_per_s"):
    return Row("tiny full", metric, Series((value,)), higher_is_better=metric != "peak_gb")


def test_the_peak_is_that_of_the_devices_name():
    assert peak("NVIDIA H200") == peak("NVIDIA H100 80GB HBM3") == 989e12
    assert peak("NVIDIA A100-SXM4-80GB") == 312e12
    assert peak("NVIDIA B200") == 2250e12
    assert peak("NVIDIA GeForce RTX 4090") is None


SIZES = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "vocab_size": 100}


def test_the_arithmetic_of_an_update():
    # a layer: q and o 64 each, k and v 8 x 4 each, three of 8 x 16: 576; two layers 1,152
    # sequences of 3 and 1: 4 tokens look at 6 + 1 places, 4 · 8 FLOP a layer for each; 2 tokens are trained
    matrices, attention = 2 * 1152 * 4 + 2 * 8 * 100 * 2, 4 * 2 * 8 * 7
    assert step_flops(SIZES, [3, 1], 2) == 3 * (matrices + attention)
    assert step_flops(SIZES, [3, 1], 2, adapter=True) == 2 * matrices + 3 * attention


def test_heads_may_be_wider_than_the_hidden_size():
    # 4 heads of 4: q and o 8 x 16 each, k and v 8 x 8 each: 384 and 384 more a layer
    wide = {"text_config": SIZES | {"head_dim": 4}}
    assert step_flops(wide, [3, 1], 0) == 3 * (2 * 2 * 768 * 4 + 4 * 2 * 16 * 7)


def test_the_weights_that_count_are_those_of_the_published_models():
    # without embeddings
    for name, billions in (("Qwen2.5-0.5B", 0.358), ("Qwen2.5-1.5B", 1.310), ("Qwen3-VL-8B", 6.946)):
        config = PUBLISHED[f"Qwen/{name}-Instruct"]
        nothing_seen = step_flops({**config.get("text_config", config), "vocab_size": 0}, [1], 0)
        assert nothing_seen / 6e9 == pytest.approx(billions, rel=2e-3)


def test_tokens_memory_and_the_share_of_the_peak(tmp_path, jobs):
    result = jobs(gpu="NVIDIA H200")
    rows = by_metric(measured(tmp_path, QUICK, H200))
    drawn = rl_data.rows(QUICK.batch)
    lengths, trained = [len(row["input_ids"]) for row in drawn], sum(sum(row["mask"]) for row in drawn)
    for case, adapter in (("tiny full", False), ("tiny LoRA", True)):
        tokens = rows[case, "tokens_per_s"]
        assert tokens.values == Series((sum(lengths) / 2.0,))
        assert tokens.ratios == Series((2.0,))
        assert rows[case, "peak_gb"].values == Series((1.5,))
        share = step_flops(TINY, lengths, trained, adapter=adapter) / 2.0 / 989e12
        assert rows[case, "mfu"].values.values == pytest.approx((share,))
    # the adapter of the model that sees, the whole text model, its logits, pictures, TRL, and what is left
    ranks = [config["model"]["lora_rank"] for config in result.configs]
    assert ranks == [16, 16, 0, 0, 16, 16, 16, 16, 0, 0, 0, 0, 16, 16]
    assert all("CUDA_VISIBLE_DEVICES" not in env for _, job, env in result.requests if job.get("what") == "update")
    assert [job["gpu"] for module, job, _ in result.requests if module == "rl_trl"] == [True]
    assert rows["tiny packed update", "update_s"].baseline == "TRL"


def test_pictures_have_their_tokens_and_a_file(tmp_path, jobs):
    result = jobs(gpu="NVIDIA H200")
    measured(tmp_path, QUICK, H200)
    (folder,) = {config["data"] for config in result.configs if config["data"].endswith("pictures")}
    lines = [json.loads(line) for line in (tmp_path / "pictures/rows.jsonl").read_text().splitlines()]
    assert folder == str(tmp_path / "pictures")
    for line in lines:
        assert line["sizes"] == [[64, 64]]
        assert line["input_ids"][: line["mask"].index(1)][-6:] == [508, 509, 509, 509, 509, 510]
        assert (tmp_path / "pictures" / line["images"][0]).read_bytes().startswith(b"\x89PNG")


def test_a_case_that_fails_costs_no_other_and_the_status_tells(tmp_path, jobs, monkeypatch, capsys):
    jobs(gpu="NVIDIA H200").failing_rank = 0
    assert gpu.main(["--quick"]) == 1
    output = capsys.readouterr()
    assert {json.loads(line)["case"].split()[-1] for line in output.out.splitlines()} == {"LoRA", "logits", "pictures"}
    assert "tiny full: benchmarks.rl_job failed" in output.err


def test_what_does_not_fit_into_the_time_is_left_out(tmp_path, jobs, capsys):
    result = jobs(gpu="NVIDIA H200")
    assert measure(tmp_path, QUICK, H200, until=0.0).rows() == []
    assert "tiny-VL LoRA: left out: no time is left" in capsys.readouterr().err
    assert gpu.main(["--quick", "--seconds", "500"]) == 0
    assert all(0 < limit <= 500 for limit in result.limits)


def test_an_unknown_gpu_has_no_share(tmp_path, jobs):
    jobs(gpu="Something new")
    rows = measured(tmp_path, QUICK, Device("Something new", 10**12))
    assert "mfu" not in {row.metric for row in rows}


def test_what_does_not_fit_is_left_out_with_a_word(tmp_path, jobs, capsys):
    jobs(gpu="NVIDIA H200")
    assert "GB before activations" in too_large("Qwen3-VL-8B", 0, H200)
    assert too_large("Qwen3-VL-8B", 16, H200) == too_large("Qwen3-VL-4B", 0, H200) == ""
    one = replace(QUICK, models={"Qwen3-VL-8B": PUBLISHED["Qwen/Qwen3-VL-8B-Instruct"]})
    cases = {row.case for row in measured(tmp_path, one, H200)}
    assert cases == {f"Qwen3-VL-8B {what}" for what in ("LoRA", "logits", "LoRA pictures")}
    assert "Qwen3-VL-8B full: left out" in capsys.readouterr().err


def test_the_words_of_the_batch_are_no_pictures():
    assert max(WHOLE.batch.vocabulary, QUICK.batch.vocabulary) < 151_643


def test_what_became_slower_is_named_with_when_it_was_faster(tmp_path):
    file = tmp_path / "baselines" / "h200.json"
    assert regressions(file, [row(100.0)]) == []
    save(file, [row(100.0), row(8.0, "peak_gb")], H200)
    assert json.loads(file.read_text())["gpu"] == "NVIDIA H200"
    versions = {"versions": {"packed": {"torch": "2.11.0"}}}
    save(tmp_path / "beside", [Row("packed", "update_s", Series((1.0,)), "TRL", Series((2.0,)), inputs=versions)], H200)
    (kept,) = json.loads((tmp_path / "beside").read_text())["rows"]
    facts = {"baseline": "TRL", "baseline_value": 2.0, "baseline_spread": [2.0, 2.0], "inputs": versions}
    assert kept == kept | facts
    assert regressions(file, [row(95.0), row(8.5, "peak_gb"), row(1.0, "mfu")]) == []
    slower, larger = regressions(file, [row(80.0), row(10.0, "peak_gb")])
    assert slower.startswith("tiny full tokens_per_s: 80, was 100 on ")
    assert larger.startswith("tiny full peak_gb: 10, was 8 on ")


@pytest.mark.parametrize(("now", "status"), [(2.0, 0), (4.0, 1)])
def test_a_run_that_is_slower_than_the_baseline_fails(tmp_path, jobs, monkeypatch, capsys, now, status):
    monkeypatch.setattr(gpu, "BASELINES", tmp_path / "baselines")
    monkeypatch.setattr(gpu, "WHOLE", QUICK)
    result = jobs(gpu="NVIDIA H200")
    assert gpu.main(["--save"]) == 0
    result.seconds = now
    assert gpu.main([]) == status
    assert ("slower: tiny full tokens_per_s" in capsys.readouterr().err) == bool(status)


def imports(nodes) -> Iterator[str]:
    """Yield what is imported outside of functions, as `a.b` and its parents."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            within = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                parts = f"{within}{alias.name}".split(".")
                yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from imports(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imports(ast.iter_child_nodes(node))


def file_of(module: str) -> Path | None:
    """Return the project's file of a module; the trainer's tests import each other from their folder."""
    inside = module.replace(".", "/")
    places = [ROOT / folder / f"{inside}{end}" for folder in (".", "tests/trainer") for end in (".py", "/__init__.py")]
    return next((place for place in places if place.is_file()), None)


def test_a_bare_gpu_machine_has_all_that_is_imported():
    entries = {"benchmarks.gpu", "benchmarks.rl_job", "webgym_cli.trainer.__main__", "runner", "role_device"}
    known, new = set(), entries
    while new:
        known |= new
        trees = [ast.parse(file.read_text()).body for file in map(file_of, new) if file]
        new = {module for tree in trees for module in imports(tree)} - known
    packages = {module for module in known if "." not in module and not file_of(module)} - sys.stdlib_module_names
    assert packages == {"torch", "transformers", "pydantic", "safetensors"}, "transformers brings safetensors"


def test_without_a_gpu_nothing_is_measured(jobs, capsys):
    jobs()
    assert gpu.main([]) == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert "no GPU in the train role" in output.err


@pytest.mark.stack
def test_a_small_model_runs_on_the_cpu_and_chunked_logits_take_less_memory(tmp_path, monkeypatch):
    needs("train")
    # test_rl_benchmark.py trains all weights, and beside TRL
    monkeypatch.setattr(gpu_cases, "beside_trl", lambda *_, **__: [])
    monkeypatch.setattr(gpu_cases, "too_large", lambda name, rank, device: "" if rank else "for this test")
    # enough that all logits at once are more than what the optimizer takes for a moment
    batch = replace(QUICK.batch, prompt=8, answer=80)
    wide = {"tiny": TINY | {"vocab_size": VOCABULARY, "num_hidden_layers": 1}}
    rows = by_metric(measured(tmp_path, replace(QUICK, batch=batch, budget=4 * 60, models=wide), CPU))
    assert {case for case, _ in rows} == {"tiny LoRA", "tiny logits"}
    assert all(row.values.median > 0 for row in rows.values())
    # all logits at once: 152,000 of them, 4 bytes each, for each token, more than once
    logits = rows["tiny logits", "update_peak_mb"]
    assert logits.baseline_values.median > batch.to_json()["trained_tokens"] * VOCABULARY * 4 / 2**20
    assert logits.ratios.median > 1
