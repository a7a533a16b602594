"""A run that can be prepared without downloads."""

import json
import sys
from pathlib import Path

from tests.prepare.buffer import fill
from tests.records.builders import CRASHED, UNSOLVED, trajectory
from webgym_cli.config.load import load
from webgym_cli.store.run import RunDir, create_or_open

WEBGYM = [sys.executable, "-m", "webgym_cli"]
TEMPLATE = (
    "{% for message in messages %}{% if message.content is string %}{{ message.content }} "
    "{% else %}{% for part in message.content %}{% if part.type == 'image' %} <|image_pad|> "
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
)


def model(folder: Path) -> Path:
    """Make a model folder whose tokenizer has one token a word."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    folder.mkdir()
    tokenizer = Tokenizer(WordLevel({"?": 0, "<|image_pad|>": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    sizes = {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 1310720}}
    (folder / "preprocessor_config.json").write_text(json.dumps(sizes))
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def filled(folder: Path, *more: str) -> RunDir:
    """Make a run with four solved trajectories of three steps, one that failed and one that broke. `more`: settings."""
    run = RunDir(folder / "run")
    overrides = [
        f"policy_config.base_model={model(folder / 'model')}",
        "algorithm_config.bf16=false",
        "algorithm_config.deepspeed_config_filename=null",
        "algorithm_config.min_token_length=1",
        "venvs.device=cpu",
        "policy_config.template=qwen3_vl_nothink",
        "train.check_template=false",  # the made chat template is none of LLaMA-Factory's
        *more,
    ]
    create_or_open(run, load(overrides=overrides))
    solved = [trajectory(number, steps=3, started_at=f"2026-01-02T03:04:{number:02d}.000+00:00") for number in range(4)]
    fill(run, *solved, trajectory(4, outcome=UNSOLVED), trajectory(5, outcome=CRASHED))
    return run


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Return every file and folder below a folder with its size and its time of change."""
    rows = ((str(path.relative_to(folder)), path.lstat()) for path in folder.rglob("*"))
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in rows}
