"""A training backend that is a script, and an export format, as a user writes them."""

import json
from pathlib import Path

from webgym_cli.prepare.export.registry import export_format
from webgym_cli.train.registry import BACKENDS
from webgym_cli.train.script import script_backend

BACKENDS.register("dial_trainer", script_backend(Path(__file__).with_name("dial_trainer.py"), data="dataset"))


@export_format("replies")
def write_replies(examples, output):
    """One reply a line."""
    for example in examples:
        output.write_line(json.dumps(example.sample.messages[-1].content))
