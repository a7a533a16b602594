"""What a training step takes on a GPU, with published models' shapes and random weights. See `benchmarks/README.md`.

python -m benchmarks.gpu            all models, whole and with an adapter; names what became slower since the baseline
python -m benchmarks.gpu --save     the same, and the rows become the baseline of this kind of GPU
python -m benchmarks.gpu --quick    tiny shapes, once; without a GPU on the CPU
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Row, Series, reported, say
from benchmarks.rl import beside_trl
from benchmarks.rl_bench import Bench, Result, compared, options
from benchmarks.rl_data import Conversations, rows, write
from benchmarks.rl_gpu import peak, step_flops
from webgym_cli.train.memory import network_memory
from webgym_cli.train.model_shapes import PUBLISHED, published_tensors

NAME = "gpu"
BASELINES = Path(__file__).parent / "baselines"
PACKED, PADDED, CHUNKED, FULL = "packed", "padded", "chunked", "full logits"
RANK = 16
SLOWER = 0.9
"""A ratio to the baseline below this is named."""
ROOM = 0.8
"""The share of a GPU's memory that weights, gradients and moments may take: the rest is for activations."""
TINY: dict[str, Any] = {
    **PUBLISHED["Qwen/Qwen2.5-0.5B-Instruct"],
    **{"vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is run."""

    repeats: int
    steps: int
    """Optimizer steps that are counted in each process."""
    batch: Conversations
    answers: Conversations
    """Of one response a row, as TRL takes them."""
    budget: int
    """Tokens that go through the model at once."""
    models: dict[str, dict[str, Any]]


_NAMES = ("Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-7B", "Qwen3-VL-2B", "Qwen3-VL-4B", "Qwen3-VL-8B")
WHOLE = Sizes(
    repeats=3,
    steps=2,
    # below the ids of Qwen's special tokens: a picture's token would want a picture
    batch=Conversations(groups=16, prompt=300, answer=900, longest=8192, turns=5, vocabulary=151_000),
    answers=Conversations(groups=8, prompt=300, answer=900, longest=2048, turns=1, vocabulary=151_000),
    budget=16_384,
    models={name: PUBLISHED[f"Qwen/{name}-Instruct"] for name in _NAMES},
)
QUICK = Sizes(
    repeats=1,
    steps=1,
    batch=Conversations(groups=1, size=4, prompt=12, answer=20, longest=60, vocabulary=500),
    answers=Conversations(groups=1, size=4, prompt=12, answer=20, longest=60, turns=1, vocabulary=500),
    budget=120,
    models={"tiny": TINY},
)


@dataclass(frozen=True, slots=True)
class Device:
    """What the train role computes on."""

    name: str
    """Empty for the CPU."""
    memory: int
    """Bytes; 0 for the CPU."""


def measured(folder: Path, sizes: Sizes, device: Device) -> list[Row]:
    """Return the rows of all models: packed beside padded, whole and with an adapter.

    For the first, a text model, also chunked beside all logits, and the update beside TRL's.
    """
    found = []
    for number, (name, config) in enumerate(sizes.models.items()):
        place = folder / str(number)
        place.mkdir()
        bench = Bench(place, sizes.steps, sizes.repeats)
        model = bench.models({name: config}, "bfloat16" if device.name else "float32")[name]
        data = write(place / "batch", sizes.batch)
        for rank in (0, RANK):
            case = f"{name} {'LoRA' if rank else 'full'}"
            if why := too_large(name, rank, device):
                say(f"{case}: left out: {why}")
                continue
            say(case)
            sides = {
                side: _side(bench, device, options(model, data, budget=sizes.budget, packed=side == PACKED, lora=rank))
                for side in (PACKED, PADDED)
            }
            found += throughput(case, bench.by_turns(sides), sizes, config, device, adapter=bool(rank))
        if number == 0:
            chunks = {CHUNKED: max(1, sizes.budget // 16), FULL: sizes.budget}
            sides = {
                side: _side(bench, device, options(model, data, budget=sizes.budget, chunk=chunk, lora=RANK))
                for side, chunk in chunks.items()
            }
            found += compared(f"{name} logits", bench.by_turns(sides), CHUNKED, FULL, _inputs(sizes, config, device))
        if number == 0 and "text_config" not in config:  # TRL is given no pictures
            found += beside_trl(
                bench, model, sizes.answers, _inputs(sizes, config, device), case=name, gpu=bool(device.name)
            )
    return found


def _side(bench: Bench, device: Device, given: dict[str, Any]) -> Callable[[], Result]:
    return lambda: bench.update(given, gpu=bool(device.name))


def too_large(name: str, rank: int, device: Device) -> str:
    """Say why a training does not fit on one GPU; empty where it does, and for an adapter."""
    count = sum(_elements(shape) for _, _, shape in published_tensors(f"Qwen/{name}-Instruct"))
    needed = 0 if rank else network_memory(count, count, None, 1).gpu
    if not device.memory or needed <= ROOM * device.memory:
        return ""
    return f"{needed / 1e9:.0f} GB before activations, the GPU has {device.memory / 1e9:.0f}"


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count


def throughput(
    case: str,
    results: dict[str, list[Result]],
    sizes: Sizes,
    config: dict[str, Any],
    device: Device,
    *,
    adapter: bool,
) -> list[Row]:
    """Return tokens a second, peak memory, and the share of the bf16 peak where the device's is known (MFU)."""
    drawn = rows(sizes.batch)
    lengths, trained = [len(row["input_ids"]) for row in drawn], sum(sum(row["mask"]) for row in drawn)
    most, flops = peak(device.name), step_flops(config, lengths, trained, adapter=adapter)
    figures: dict[str, Callable[[Result], float]] = {
        "tokens_per_s": lambda result: sum(lengths) / result["seconds"],
        "peak_gb": lambda result: (result["held_mb"] + result["peak_mb"]) / 1024,
    }
    if most is not None:
        figures["mfu"] = lambda result: flops / result["seconds"] / most
    inputs = _inputs(sizes, config, device) | {"attention": results[PACKED][0]["attention"]}
    return [
        Row(
            case,
            metric,
            Series(tuple(map(figure, results[PACKED]))),
            PADDED,
            Series(tuple(map(figure, results[PADDED]))),
            higher_is_better=metric != "peak_gb",
            inputs=inputs,
        )
        for metric, figure in figures.items()
    ]


def _inputs(sizes: Sizes, config: dict[str, Any], device: Device) -> dict[str, Any]:
    told = {"batch": sizes.batch.to_json(), "model": config, "tokens_at_once": sizes.budget, "steps": sizes.steps}
    return told | {"gpu": device.name}


def baseline_file(device: Device) -> Path:
    """Return where the rows of this kind of GPU are kept."""
    return BASELINES / f"{(device.name or 'cpu').lower().replace(' ', '-')}.json"


def save(file: Path, found: Sequence[Row], device: Device) -> None:
    """Keep rows as the baseline, with date and commit."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    kept = [
        {
            "case": row.case,
            "metric": row.metric,
            "value": row.values.median,
            "spread": row.values.to_json(),
            "higher_is_better": row.higher_is_better,
        }
        for row in found
    ]
    told = {"gpu": device.name, "date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit.stdout.strip(), "rows": kept}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def regressions(file: Path, found: Sequence[Row]) -> list[str]:
    """Return a line for each figure that is worse than the baseline's; none without a baseline."""
    if not file.is_file():
        return []
    told = json.loads(file.read_text(encoding="utf-8"))
    before = {(row["case"], row["metric"]): row["value"] for row in told["rows"]}
    worse = []
    for row in found:
        was, now = before.get((row.case, row.metric)), row.values.median
        ratio = None if was is None else now / was if row.higher_is_better else was / now
        if ratio is not None and ratio < SLOWER:
            worse.append(f"{row.case} {row.metric}: {now:.4g}, was {was:.4g} on {told['date']} ({told['commit']})")
    return worse


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="What a training step takes.")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, once")
    parser.add_argument("--repeats", type=int, help="processes of each side (default: 3)")
    parser.add_argument("--model", action="append", choices=tuple(WHOLE.models), help="only this one; repeatable")
    parser.add_argument("--save", action="store_true", help="keep the rows as this GPU's baseline")
    parser.add_argument("--folder", type=Path, help="where models are made (default: the temporary folder)")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run what was asked for: rows as JSON on stdout, a table and progress on stderr; 1 where something is slower."""
    asked, found, devices = _arguments(words), list[Row](), list[Device]()
    sizes = QUICK if asked.quick else WHOLE
    if asked.model and not asked.quick:
        sizes = replace(sizes, models={name: sizes.models[name] for name in asked.model})
    sizes = replace(sizes, repeats=asked.repeats or sizes.repeats)

    def measure(folder: Path) -> list[Row]:
        told = Bench(folder, 1, 1).job({"what": "models", "models": [], "dtype": "float32"}, gpu=True)
        devices.append(Device(told["gpu"], told["memory"]))
        if not told["gpu"] and not asked.quick:
            say("no GPU in the train role: --quick runs tiny shapes on the CPU")
            return []
        found.extend(measured(folder, sizes, devices[0]))
        return found

    status = reported(NAME, measure, asked.folder)
    if status or not found or asked.quick:
        return status
    file = baseline_file(devices[0])
    worse = regressions(file, found)
    for line in worse:
        say(f"slower: {line}")
    if asked.save:
        save(file, found, devices[0])
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
