"""Stands in for a trainer: a checkpoint that is the model but for one weight, and the ids of what it was given.

With `TRAINER_AWAITS` it ends well only once so many episodes are stored in the run.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

launch = json.loads(Path(sys.argv[1]).read_text())
time.sleep(float(os.environ.get("TRAIN_SECONDS", "0")))
if os.environ.get("TRAINER_FAILS"):
    sys.exit("the trainer broke")
data, checkpoint = Path(launch["data"]), Path(launch["output_dir"]) / "checkpoint-1"
if not checkpoint.exists():
    copy = checkpoint.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(launch["model"], copy, ignore=shutil.ignore_patterns("checkpoint.json"))
    (weights,) = copy.glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] = (content[-1] + 1) % 256
    weights.write_bytes(content)
    copy.rename(checkpoint)
if awaited := int(os.environ.get("TRAINER_AWAITS", "0")):
    (stored,) = (stored for parent in data.parents if (stored := parent / "train_trajectories").is_dir())
    end = time.monotonic() + 60
    while sum(part.read_text().count("\n") for part in stored.glob("*/part-*.jsonl")) < awaited:
        time.sleep(0.1)
        if time.monotonic() > end:
            sys.exit("no episode ends while the trainer works")
rows = data / "rows.jsonl"
if rows.exists():
    trained = sorted({json.loads(line)["trajectory"] for line in rows.read_text().splitlines()})
    (checkpoint / "trained.json").write_text(json.dumps(trained))
(checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": 1, "max_steps": 1}))
