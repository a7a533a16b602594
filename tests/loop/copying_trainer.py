"""Stands in for a trainer: a checkpoint that is a copy of the model, and the ids of what it was given."""

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
checkpoint = Path(launch["output_dir"]) / "checkpoint-1"
if not checkpoint.exists():
    shutil.copytree(launch["model"], checkpoint, ignore=shutil.ignore_patterns("checkpoint.json"))
rows = Path(launch["data"]) / "rows.jsonl"
if rows.exists():
    trained = sorted({json.loads(line)["trajectory"] for line in rows.read_text().splitlines()})
    (checkpoint / "trained.json").write_text(json.dumps(trained))
(checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": 1, "max_steps": 1}))
