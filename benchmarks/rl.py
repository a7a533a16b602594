"""What the update step of policy-gradient training takes. See `benchmarks/README.md`.

python -m benchmarks.rl            packing, logits and TRL, on the CPU
python -m benchmarks.rl --quick    small, each side once: mostly the starts of ten processes, a minute or two
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, reported, say
from benchmarks.rl_bench import CLIP, RATE, Bench, Result, compared, options, series
from benchmarks.rl_data import TEMPERATURE, Conversations, rows, write
from webgym_cli.errors import JobError

NAME = "rl"
PACKED, PADDED, CHUNKED, FULL, TRL = "packed", "padded", "chunked", "full logits", "TRL"
VOCABULARY = 151_936
_ALIKE = 0.999
"""How near to 1 the cosine of TRL's gradient and ours must be: else they don't do the same."""
_AT_ONCE = 2
"""Sequences of full length that go through the model together, TRL's and ours."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is run."""

    repeats: int
    steps: int
    """Optimizer steps that are counted in each process."""
    conversations: Conversations
    answers: Conversations
    """For TRL, which knows no tools' words between the policy's."""
    tokens: Conversations
    """For the logits."""
    chunk: int
    """About a 16th of the tokens that go through the model at once: as with the defaults, 1,024 of 16,384."""
    model: dict[str, Any]

    @property
    def wide(self) -> dict[str, Any]:
        """The model with a real vocabulary, and little else."""
        return {**self.model, "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 1}


WHOLE = Sizes(
    repeats=5,
    steps=2,
    conversations=Conversations(groups=4, longest=1024),
    answers=Conversations(groups=3, longest=768, turns=1),
    tokens=Conversations(groups=1, size=4, answer=240, sigma=0.1, turns=1, vocabulary=VOCABULARY),
    chunk=80,
    model={
        "vocab_size": 8192,
        "hidden_size": 256,
        "intermediate_size": 688,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
)
QUICK = replace(
    WHOLE,
    repeats=1,
    steps=1,
    conversations=Conversations(groups=2, longest=512),
    answers=Conversations(groups=1, longest=512, turns=1),
    tokens=replace(WHOLE.tokens, size=2, answer=60),
    chunk=16,
    model={**WHOLE.model, "hidden_size": 64, "intermediate_size": 128},
)


def packing(bench: Bench, sizes: Sizes) -> list[Row]:
    """Compare sequences without padding with padded ones."""
    batch, model = sizes.conversations, bench.models({"packing": sizes.model})["packing"]
    data = write(bench.folder / "batch", batch)
    results = bench.by_turns(_both(bench, model, data, batch.longest))
    inputs = _inputs(sizes, batch, sizes.model, budget=batch.longest)
    return compared("packed sequences", results, PACKED, PADDED, inputs)


def logits(bench: Bench, sizes: Sizes) -> list[Row]:
    """Compare the log-probs of a chunk of tokens at a time with those of all at once."""
    batch, model = sizes.tokens, bench.models({"logits": sizes.wide})["logits"]
    data, budget = write(bench.folder / "batch", batch), sum(len(row["input_ids"]) for row in rows(batch))

    def side(chunk: int) -> Callable[[], Result]:
        return lambda: bench.update(options(model, data, budget=budget, chunk=chunk))

    results = bench.by_turns({CHUNKED: side(sizes.chunk), FULL: side(budget)})
    inputs = {**_inputs(sizes, batch, sizes.wide, budget=budget), "chunk": sizes.chunk}
    return compared("chunked logits", results, CHUNKED, FULL, inputs)


def against_trl(bench: Bench, sizes: Sizes) -> list[Row]:
    """Compare the update with TRL's, on the same model and batch. Raises `JobError` where the gradients differ."""
    model = bench.models({"trl": sizes.model})["trl"]
    return beside_trl(bench, model, sizes.answers, {"model": sizes.model, "steps": sizes.steps})


def beside_trl(
    bench: Bench, model: Path, batch: Conversations, text: dict[str, Any], *, case: str = "", gpu: bool = False
) -> list[Row]:
    """Compare the update of a model with TRL's, on a batch of one response a row.

    Raises `JobError` where the gradients differ, on a CPU: in bfloat16 they differ by their rounding.
    """
    folder = bench.folder / "beside-trl"
    folder.mkdir()
    data, budget = write(folder / "batch", batch), _AT_ONCE * batch.longest
    ours = _both(bench, model, data, budget, gradients=folder, gpu=gpu)
    job = {
        "data": str(data),
        "model": str(model),
        "folder": str(folder / "trl"),
        "gradients": [str(_gradient(folder, name)) for name in ours],
        "gpu": gpu,
        "steps": bench.steps,
        "group_size": batch.size,
        "micro_batch": _AT_ONCE,
        "temperature": TEMPERATURE,
        "lr": RATE,
        "grad_clip": CLIP,
    }
    results = bench.by_turns({**ours, TRL: lambda: bench.job(job, module="rl_trl", gpu=gpu)})
    alike = [one for result in results[TRL] for one in result["gradients"]]
    cosine = min(one["cosine"] for one in alike)
    if cosine < _ALIKE and not gpu:
        raise JobError(f"TRL's gradient is not ours (cosine {cosine:.4f}): the two can't be compared")
    inputs = {**text, "batch": batch.to_json(), "tokens_at_once": budget, "gradients": alike[0]}
    return [row for name in ours for row in _beside_trl(f"{case} {name}".strip(), name, results, inputs)]


def _beside_trl(label: str, name: str, results: dict[str, list[Result]], inputs: dict[str, Any]) -> list[Row]:
    """Return the rows of one of our ways, with and without the log-probs of before, which TRL does without."""
    case, theirs = f"{label} update", series(results[TRL], "seconds")
    update = compared(case, results, name, TRL, inputs)
    ours, about = series(results[name], "seconds", "old_log_prob"), update[0].inputs
    return [*update, Row(case, "with_old_log_probs_s", ours, TRL, theirs, inputs=about)]


def _both(
    bench: Bench, model: Path, data: Path, budget: int, *, gradients: Path | None = None, gpu: bool = False
) -> dict[str, Callable[[], Result]]:
    """Return the trainer's two ways to put sequences through a model; `gradients`: a folder to write them into."""

    def side(name: str, packed: bool) -> Callable[[], Result]:
        given = options(model, data, budget=budget, packed=packed)
        gradient = _gradient(gradients, name) if gradients else None
        return lambda: bench.update(given, gradient=gradient, gpu=gpu)

    return {PACKED: side(PACKED, True), PADDED: side(PADDED, False)}


def _gradient(folder: Path, name: str) -> Path:
    return folder / f"{name}.safetensors"


def _inputs(sizes: Sizes, batch: Conversations, shape: dict[str, Any], *, budget: int) -> dict[str, Any]:
    return {"batch": batch.to_json(), "model": shape, "tokens_at_once": budget, "steps": sizes.steps}


PARTS: dict[str, Callable[[Bench, Sizes], list[Row]]] = {"packing": packing, "logits": logits, "trl": against_trl}


def measured(folder: Path, sizes: Sizes, only: Sequence[str] = ()) -> list[Row]:
    """Run the parts that are asked for, all of them without a word."""
    calls = []
    for name in only or PARTS:
        say(name)
        place = folder / name
        place.mkdir()
        calls += PARTS[name](Bench(place, sizes.steps, sizes.repeats), sizes)
    return calls


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rl", description="What the RL update step takes.")
    parser.add_argument("--quick", action="store_true", help="small batches and models, once")
    parser.add_argument("--repeats", type=int, help="processes of each side (default: 5)")
    parser.add_argument("--only", action="append", choices=tuple(PARTS), help="only this part; repeatable")
    parser.add_argument("--folder", type=Path, help="where models and batches are made (default: the temporary folder)")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run what was asked for: rows as JSON on stdout, a table and progress on stderr."""
    args = _arguments(words)
    sizes = QUICK if args.quick else WHOLE
    if args.repeats:
        sizes = replace(sizes, repeats=args.repeats)
    return reported(NAME, lambda folder: measured(folder, sizes, args.only or ()), args.folder)


if __name__ == "__main__":
    sys.exit(main())
