"""The critic of a checkpoint, asked in the train role: heads that are made by hand say what they must."""

import json
import math
import shutil
import struct

import pytest

from tests.stack_fixtures import needs
from webgym_cli.config.load import load
from webgym_cli.errors import JobError
from webgym_cli.train.policy_gradient.critic_scoring import HEADS, CriticState, success_probabilities

pytestmark = pytest.mark.stack


def write_heads(folder, width, *odds):
    """Write heads of WebRL's shape that say the same in every state: success with these odds."""
    tensors = {}
    for number, of_success in enumerate(odds):
        for layer, size in ((0, width), (2, width), (4, 2)):
            tensors[f"{number}.{layer}.weight"] = ([size, width], [0.0] * (size * width))
            tensors[f"{number}.{layer}.bias"] = ([size], [0.0] * size)
        tensors[f"{number}.4.bias"] = ([2], [0.0, math.log(of_success)])
    head, content = {}, b""
    for name, (shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}f", *values)
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(content), len(content) + len(packed)]}
        content += packed
    text = json.dumps(head).encode()
    (folder / HEADS).write_bytes(struct.pack("<Q", len(text)) + text + content)


@pytest.fixture
def critic(tiny_model_dir, tmp_path):
    needs("train")
    folder = tmp_path / "critic"
    shutil.copytree(tiny_model_dir, folder)
    config = json.loads((folder / "config.json").read_text())
    width = config.get("text_config", config)["hidden_size"]
    write_heads(folder, width, 3.0, 9.0)
    return folder


async def test_each_head_is_told_and_a_torn_critic_is_named(critic, tiny_model_dir, tmp_path):
    states = [CriticState([1, 2, 3]), CriticState([4])]
    values = await success_probabilities(critic, tiny_model_dir, states, load(), tmp_path / "critic.log")
    assert [value for heads in values for value in heads] == pytest.approx([0.75, 0.9] * 2)
    (critic / HEADS).write_bytes(b"torn")
    with pytest.raises(JobError, match=r"can't be asked .*outcome_heads.*can't be read"):
        await success_probabilities(critic, tiny_model_dir, states[:1], load(), tmp_path / "critic.log")
    assert f"{HEADS}: can't be read" in (tmp_path / "critic.log").read_text()
