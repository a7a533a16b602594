"""A batch for policy gradients, written by hand: text for the tiny model, with episodes of two groups."""

import hashlib
import json
import random
from pathlib import Path

from webgym_cli.records.dataset import ROWS, SUMMARY, TRAJECTORIES, RlData
from webgym_cli.records.sampling import Sampling
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import write_json

COUNT = 8


def write_batch(run: RunDir, model: Path, name: str) -> None:
    """Write `COUNT` episodes of one step as the first batch of a run; every other one was solved."""
    chance, rows = random.Random(7), []
    for number in range(COUNT):
        ids = [chance.randrange(200) for _ in range(chance.randrange(12, 30))]
        mask = [int(place >= 8) for place in range(len(ids))]
        row = {"number": number, "step": 0, "steps": [0], "trajectory": f"t{number}", "group": number % 2}
        rows.append(row | {"input_ids": ids, "mask": mask, "logprobs": [-6.0] * sum(mask), "images": [], "sizes": []})
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    facts = {"task": "x", "policy": "tiny", "greedy": False}
    result = [
        {"id": f"t{number}", "number": number, "group": number % 2, "reward": float(number // 2 % 2), **facts}
        for number in range(COUNT)
    ]
    run.rl_data.mkdir()
    (run.rl_data / ROWS).write_text(text)
    (run.rl_data / TRAJECTORIES).write_text("".join(f"{json.dumps(one)}\n" for one in result))
    counts = {"trained": COUNT, "rows": COUNT, "tokens": sum(len(row["input_ids"]) for row in rows)}
    digests = {"plan_digest": "p", "digest": hashlib.sha256(text.encode()).hexdigest()}
    names = {"iteration": 0, "model_name": name, "policy": "tiny", "model": str(model)}
    trained = sum(sum(row["mask"]) for row in rows)
    data = RlData(sampling=Sampling(temperature=1.0), trained_tokens=trained, **names, **counts, **digests)
    write_json(run.rl_data / SUMMARY, data.facts())
