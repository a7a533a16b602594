"""The shipped configurations as DeepSpeed itself reads them."""

import json
from pathlib import Path

import pytest

from webgym_cli.config.shipped import shipped_root

pytestmark = pytest.mark.stack
FILES = sorted(shipped_root().glob("deepspeed/*.json"))


@pytest.fixture(scope="module")
def loaded(in_train_role, tmp_path_factory) -> dict:
    script = Path(__file__).with_name("deepspeed_load.py")
    lines = in_train_role(script, tmp_path_factory.mktemp("out"), *FILES).splitlines()
    result = next(line for line in lines if line.startswith("RESULT "))
    return json.loads(result.removeprefix("RESULT "))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_deepspeed_takes_the_file_as_it_is_named(loaded, file):
    result = loaded[file.name]
    stage = int(file.stem.partition("zero")[2][0])
    offload = "cpu" if file.stem.endswith("_offload") else None
    assert (result["stage"], result["optimizer"]) == (stage, offload)
    assert result["parameters"] == (offload if stage == 3 else None)
    assert result["bf16"] is True
    assert result["batch"] == 12
    assert result["overlap"] is not file.stem.startswith("ds_config_cpu")
    assert result["whole_weights"] is (stage == 3), "a checkpoint must hold whole weights under stage 3 too"
    assert result["bucket"] > 0
