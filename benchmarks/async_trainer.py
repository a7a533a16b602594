"""Stands in for a trainer: it sleeps as long as a training would take and leaves a copy of the model."""

import json
import shutil
import sys
import time
from pathlib import Path

launch = json.loads(Path(sys.argv[1]).read_text())
time.sleep(launch["extra"]["seconds"])
checkpoint = Path(launch["output_dir"]) / "checkpoint-1"
shutil.copytree(launch["model"], checkpoint, ignore=shutil.ignore_patterns("checkpoint.json"))
(checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": 1, "max_steps": 1}))
