"""The cases of the GPU benchmark: shapes, batches, what is compared with what, and in which order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Series, say
from benchmarks.model_shapes import PUBLISHED, published_tensors
from benchmarks.rl import beside_trl
from benchmarks.rl_bench import Bench, Result, compared, options
from benchmarks.rl_data import Conversations, rows, write
from benchmarks.rl_gpu import peak, step_flops
from webgym_cli.errors import JobError
from webgym_cli.train.footprint import network_memory

PACKED, PADDED, CHUNKED, FULL = "packed", "padded", "chunked", "full logits"
RANK = 16
ROOM = 0.8
"""The share of a GPU's memory that weights, gradients and moments may take: the rest is for activations."""
PICTURE_TOKENS = {"vision_start": 151_652, "image": 151_655, "vision_end": 151_653}
"""Of the published models."""
_SMALL = {
    **{"vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
}
TINY: dict[str, Any] = {**PUBLISHED["Qwen/Qwen2.5-0.5B-Instruct"], **_SMALL}
_VL = PUBLISHED["Qwen/Qwen3-VL-4B-Instruct"]
TINY_VL: dict[str, Any] = {
    **_VL,
    "text_config": {**_VL["text_config"], **_SMALL, "hidden_size": 64},
    "vision_config": {
        **_VL["vision_config"],
        **{"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64},
        "deepstack_visual_indexes": [0],
    },
    **{"vision_start_token_id": 508, "image_token_id": 509, "vision_end_token_id": 510, "video_token_id": 511},
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
    screen: tuple[int, int]
    """Width and height of a picture."""
    models: dict[str, dict[str, Any]]
    """The most important first."""


_NAMES = ("Qwen3-VL-4B", "Qwen2.5-1.5B", "Qwen3-VL-8B", "Qwen3-VL-2B", "Qwen2.5-7B", "Qwen2.5-0.5B")
WHOLE = Sizes(
    repeats=3,
    steps=2,
    # below the ids of Qwen's special tokens: a picture's token would want a picture
    batch=Conversations(groups=16, prompt=300, answer=900, longest=8192, turns=5, vocabulary=151_000),
    answers=Conversations(groups=8, prompt=300, answer=900, longest=2048, turns=1, vocabulary=151_000),
    budget=16_384,
    screen=(1280, 768),
    models={name: PUBLISHED[f"Qwen/{name}-Instruct"] for name in _NAMES},
)
QUICK = Sizes(
    repeats=1,
    steps=1,
    batch=Conversations(groups=1, size=4, prompt=12, answer=20, longest=60, vocabulary=500),
    answers=Conversations(groups=1, size=4, prompt=12, answer=20, longest=60, turns=1, vocabulary=500),
    budget=120,
    screen=(64, 64),
    models={"tiny-VL": TINY_VL, "tiny": TINY},
)


@dataclass(frozen=True, slots=True)
class Device:
    """What the train role computes on."""

    name: str
    """Empty for the CPU."""
    memory: int
    """Bytes; 0 for the CPU."""


@dataclass
class Measurement:
    """The cases of all models on one device; `failed` names those that gave no rows."""

    bench: Bench
    sizes: Sizes
    device: Device
    failed: list[str] = field(default_factory=list)
    _folders: dict[str, Path] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        """Return the rows of every case that fits on the GPU and into the time. One that fails costs no other."""
        calls: list[Row] = []
        for label, case in self.cases():
            if self.bench.until is not None and time.monotonic() > self.bench.until:
                say(f"{label}: left out: no time is left")
                continue
            say(label)
            try:
                calls += case()
            except JobError as error:
                say(f"{label}: {error}")
                self.failed.append(label)
        return calls

    def cases(self) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
        """Yield the cases, most important first: an adapter on a model that sees, and a text model as a whole.

        Then all logits at once, pictures and TRL on those, and what is left of the models.
        """
        models = self.sizes.models
        sees = next((name for name in models if "vision_config" in models[name]), None)
        text = next((name for name in models if "vision_config" not in models[name]), None)
        first = [(name, rank) for name, rank in ((sees, RANK), (text, 0)) if name]
        last = [(name, rank) for name in models for rank in (0, RANK) if (name, rank) not in first]
        yield from self._throughputs(first)
        if name := text or sees:
            yield f"{name} logits", partial(self._logits, name)
        if sees:
            yield f"{sees} pictures", partial(self._pictures, sees)
        if text:  # TRL is given no pictures
            yield f"{text} TRL", partial(self._trl, text)
        yield from self._throughputs(last)

    def _throughputs(self, pairs: Sequence[tuple[str, int]]) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
        for name, rank in pairs:
            case = f"{name} {'LoRA' if rank else 'full'}"
            if why := too_large(name, rank, self.device):
                say(f"{case}: left out: {why}")
            else:
                yield case, partial(self._throughput, case, name, rank)

    def _throughput(self, case: str, name: str, rank: int) -> list[Row]:
        config = self.sizes.models[name]
        results = self._packed_and_padded(name, self._data(self.sizes.batch, "batch"), rank)
        return throughput(case, results, self.sizes, config, self.device, adapter=bool(rank))

    def _logits(self, name: str) -> list[Row]:
        budget, data = self.sizes.budget, self._data(self.sizes.batch, "batch")
        chunks = {CHUNKED: max(1, budget // 16), FULL: budget}
        sides = {
            side: self._side(options(self._model(name), data, budget=budget, chunk=chunk, lora=RANK))
            for side, chunk in chunks.items()
        }
        inputs = _inputs(self.sizes, self.sizes.models[name], self.device)
        return compared(f"{name} logits", self.bench.by_turns(sides), CHUNKED, FULL, inputs)

    def _pictures(self, name: str) -> list[Row]:
        config = self.sizes.models[name]
        tokens = tuple(config.get(f"{kind}_token_id", number) for kind, number in PICTURE_TOKENS.items())
        batch = replace(self.sizes.batch, picture=(*self.sizes.screen, tokens))
        results = self._packed_and_padded(name, self._data(batch, "pictures"), RANK)
        inputs = _inputs(replace(self.sizes, batch=batch), config, self.device)
        return compared(f"{name} LoRA pictures", results, PACKED, PADDED, inputs)

    def _trl(self, name: str) -> list[Row]:
        inputs = _inputs(self.sizes, self.sizes.models[name], self.device)
        gpu = bool(self.device.name)
        return beside_trl(self.bench, self._model(name), self.sizes.answers, inputs, case=name, gpu=gpu)

    def _packed_and_padded(self, name: str, data: Path, rank: int) -> dict[str, list[Result]]:
        model, budget = self._model(name), self.sizes.budget
        sides = {
            side: self._side(options(model, data, budget=budget, packed=side == PACKED, lora=rank))
            for side in (PACKED, PADDED)
        }
        return self.bench.by_turns(sides)

    def _side(self, given: dict[str, Any]) -> Callable[[], Result]:
        return lambda: self.bench.update(given, gpu=bool(self.device.name))

    def _model(self, name: str) -> Path:
        if name not in self._folders:
            gpu, wanted = bool(self.device.name), {name: self.sizes.models[name]}
            self._folders |= self.bench.models(wanted, "bfloat16" if gpu else "float32", gpu=gpu)
        return self._folders[name]

    def _data(self, batch: Conversations, name: str) -> Path:
        folder = self.bench.folder / name
        return folder if folder.exists() else write(folder, batch)


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
    case: str, results: dict[str, list[Result]], sizes: Sizes, config: dict[str, Any], device: Device, *, adapter: bool
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
    fields = {"batch": sizes.batch.to_json(), "model": config, "tokens_at_once": sizes.budget, "steps": sizes.steps}
    return fields | {"gpu": device.name}
