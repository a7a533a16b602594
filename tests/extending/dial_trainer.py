"""Stands in for a trainer: it leaves a checkpoint as `TrainingBackend` wants it, made of the model it starts from."""

import json
import shutil
import sys
from pathlib import Path

launch = json.loads(Path(sys.argv[1]).read_text())
samples = json.loads((Path(launch["data"]) / "finetune_train.json").read_text())
checkpoint = Path(launch["output_dir"]) / "checkpoint-1"
shutil.copytree(launch["model"], checkpoint)
(checkpoint / "samples.json").write_text(json.dumps(len(samples)))
(checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": 1, "max_steps": 1}))
