"""Tiny models and batches of episodes for the trainer's tests, in the train role's interpreter."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import torch

from webgym_cli.trainer.__main__ import trainer_class
from webgym_cli.trainer.data import read_batch
from webgym_cli.trainer.engine.distributed import DistributedContext
from webgym_cli.trainer.engine.model_factory import ModelFactory
from webgym_cli.trainer.engine.step import BatchRunner
from webgym_cli.trainer.options import TrainerOptions, parse_options
from webgym_cli.trainer.ppo.ppo_trainer import PolicyGradientTrainer

HERE = Path(__file__).resolve().parent
SHIPPED = HERE.parents[1] / "configs" / "deepspeed"
CPU = DistributedContext(0, 1, torch.device("cpu"))
DEVICE = torch.device(os.environ.get("TEST_DEVICE", "cpu"))
ALONE = DistributedContext(0, 1, DEVICE)
# read by CUDA's matrix library when it starts: without it, torch promises no equal bits
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
V = 64
PATIENCE = 500
"""Seconds that two processes may take on a busy machine."""
PAIRS = []
"""The processes that `several` started; the last ones are used."""
OPTIM = {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.0}
"""A large epsilon: without it, Adam makes whole steps of rounding errors where a gradient is 0."""


@contextlib.contextmanager
def scratch():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def text_model(folder, seed=1, dtype=torch.float32, tied=False, **sizes):
    """Write a Qwen2 with random weights, of two layers unless told otherwise."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    given = {"vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    given |= {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}
    torch.manual_seed(seed)
    config = Qwen2Config(tie_word_embeddings=tied, **(given | sizes))
    AutoModelForCausalLM.from_config(config, dtype=dtype).save_pretrained(folder)
    return folder


def plain_log_probs(folder, rows, temperature=1.0):
    """Return the log-probs of the rows' trained tokens by a plain forward pass of transformers, row by row."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    calls = []
    for row in rows:
        ids, mask = torch.tensor(row["input_ids"]), torch.tensor(row["mask"], dtype=torch.bool)
        with torch.no_grad():
            logs = (model(input_ids=ids[None]).logits[0, :-1] / temperature).log_softmax(-1)
        calls.append(logs.gather(-1, ids[1:, None])[:, 0][mask[1:]])
    return calls


def some_rows(count=8, seed=3, longest=14):
    """Return rows of random tokens with two answers each, an observation between them; one trajectory each."""
    chance = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(count):
        length = int(torch.randint(9, longest, (1,), generator=chance))
        ids = torch.randint(V, (length,), generator=chance).tolist()
        mask = [0] * 3 + [1] * 2 + [0] * 2 + [1] * (length - 7)
        rows.append({"input_ids": ids, "mask": mask, "number": number, "step": 0})
    return rows


def write_batch(folder, rows, *, rewards, groups, greedy=(), model=None, temperature=1.0, iteration=0):
    """Write a batch; log-probs are those of the model, else -9."""
    folder.mkdir(parents=True, exist_ok=True)
    logs = plain_log_probs(model, rows, temperature) if model else [torch.full((sum(r["mask"]),), -9.0) for r in rows]
    lines = []
    for row, result in zip(rows, logs, strict=True):
        value = {"trajectory": f"t{row['number']}", "group": groups[row["number"]], "steps": [row["step"]]}
        lines.append(json.dumps({"images": [], "sizes": [], **value, "logprobs": result.tolist(), **row}) + "\n")
    text = "".join(lines)
    (folder / "rows.jsonl").write_text(text)
    tell = [
        {"id": f"t{n}", "number": n, "group": groups[n], "reward": reward, "task": "x", "policy": "p"}
        | {"greedy": n in greedy}
        for n, reward in enumerate(rewards)
    ]
    (folder / "trajectories.jsonl").write_text("".join(json.dumps(value) + "\n" for value in tell))
    head = {"schema": 1, "iteration": iteration, "policy": "p", "model": "m", "rows": len(rows)}
    head |= {"sampling": {"temperature": temperature, "top_k": 0, "top_p": 1.0, "min_p": 0.0}}
    head["digest"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "rl.json").write_text(json.dumps(head))
    return folder


def usual(place, *, rewards=(1.0, 0.0, 1.0, 0.0, 0.0, 1.0, None, 1.0), seed=3, **more):
    """Write a model and a batch of eight episodes in two groups, one of which failed; return their folders."""
    model = text_model(place / "model")
    groups = [0, 0, 0, 0, 1, 1, 1, 1]
    return model, write_batch(place / "data", some_rows(seed=seed), rewards=rewards, groups=groups, model=model, **more)


def values(place, **sections):
    """Return settings for `usual`: each section's values are added to these."""
    fields = {
        "data": str(place / "data"),
        "model": {"path": str(place / "model"), "enable_gradient_checkpointing": False},
        "trainer": {"output_dir": str(place / "out"), "bf16": False},
        "actor": {"optim": OPTIM, "grad_clip": 10.0, "ppo_max_token_len_per_gpu": 40},
        "critic": {"optim": OPTIM, "grad_clip": 10.0},
    }
    for name, given in sections.items():
        fields[name] = {**fields.get(name, {}), **given}
    return fields


def options(place, **sections) -> TrainerOptions:
    """Return the same as the trainer reads them."""
    return parse_options(json.dumps(values(place, **sections)), "test")


def train(place, world=ALONE, **sections):
    """Train in this process; return the finished model's folder."""
    given = options(place, **sections)
    return trainer_class(given)(given, world).run()


def scores(place, folder, world=ALONE, **sections):
    """Return the log-probs [K] that the trainer gives a batch under a model."""
    given = options(place, **{**sections, "model": {**sections.get("model", {}), "path": str(folder)}})
    batch = read_batch(Path(given.data))
    factory = ModelFactory(given, world, batch)
    actor = factory.actor(Path(folder))
    return BatchRunner(given, world, batch, factory.collator(Path(folder), actor.module.network)).score(actor)


class Stopped(Exception):
    pass


@contextlib.contextmanager
def stopping_before(number, trainer=PolicyGradientTrainer):
    """End a training before a step, as a crash would."""
    whole = trainer.step

    def step(self, worker, learned, count):
        if count == number:
            raise Stopped
        return whole(self, worker, learned, count)

    trainer.step = step
    try:
        yield
    finally:
        trainer.step = whole


def log_of(place, name="out"):
    """Return the lines of a training's log."""
    return [json.loads(line) for line in (place / name / "trainer_log.jsonl").read_text().splitlines()]


def weights_of(folder):
    """Return a model's weights by name."""
    from safetensors.torch import load_file

    return {name: value for path in sorted(folder.glob("*.safetensors")) for name, value in load_file(path).items()}


def assert_same(one, other, **tolerance):
    """Compare two models' weights."""
    first, second = weights_of(one), weights_of(other)
    assert first.keys() == second.keys() and first
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], **tolerance, msg=lambda text, name=name: f"{name}: {text}")


def started(*arguments, errors):
    """Start a script of Python in two processes, or one where there is one GPU; what they say goes into a file."""
    count = 2 if DEVICE.type == "cpu" else min(2, torch.cuda.device_count())
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}"]
    env = os.environ | {"OMP_NUM_THREADS": "1"} | ({"CUDA_VISIBLE_DEVICES": ""} if DEVICE.type == "cpu" else {})
    with errors.open("wb") as file:
        return subprocess.Popen([*command, *map(str, arguments)], stdout=file, stderr=file, env=env)


class Pair:
    """Two processes that train whatever a test wants: each start of torch and DeepSpeed takes ten seconds."""

    def __init__(self):
        self._folder = Path(tempfile.mkdtemp())
        self._numbers = count()
        self._errors = self._folder / "errors"
        script = (HERE / "several.py", self._folder, os.getpid())
        self._processes = started(*script, errors=self._errors)

    @property
    def runs(self):
        return self._processes.poll() is None

    def train(self, configs):
        """Train as `several.py` says; fail with what the processes said."""
        number, deadline = next(self._numbers), time.monotonic() + PATIENCE
        st_size = self._errors.stat().st_size
        request = self._folder / f"{number}.new"
        request.write_text("\n".join(map(str, configs)))
        request.rename(self._folder / str(number))
        while not (self._folder / f"{number}.done").exists():
            if not self.runs or time.monotonic() > deadline:
                self._processes.kill()
                raise AssertionError(self._errors.read_text()[st_size:][-6000:])
            time.sleep(0.02)


def several(*configs):
    """Train in two processes, one training after another: each of a file of settings, or CONFIG@STEP."""
    if not PAIRS or not PAIRS[-1].runs:
        PAIRS.append(Pair())
    PAIRS[-1].train(configs)


def written(place, name, **sections):
    """Write settings for `usual` into a file, their output beside it; return the file."""
    sections["trainer"] = {"output_dir": str(place / name), **sections.get("trainer", {})}
    path = place / f"{name}.json"
    path.write_text(json.dumps(values(place, **sections)))
    return path
