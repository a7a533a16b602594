"""Files that the real torch wrote: the archive's form is torch's to choose."""

import json

import pytest

from tests.imports.foreign import WRITER, webgym_episode, webgym_pictures
from webgym_cli.imports.pickle_stubs import PickleRefused
from webgym_cli.imports.pickled import read_pickle
from webgym_cli.imports.source import ImportedEpisode
from webgym_cli.imports.webgym import RECORDS, read

pytestmark = pytest.mark.stack

SAVE = """
import torch
for path, modern in given["paths"]:
    torch.save(make(given["values"][0]), path, _use_new_zipfile_serialization=modern)
torch.save({"trajectories": [torch.zeros(2)]}, given["tensors"])
"""


def test_what_torch_saves_is_read_in_both_of_its_forms(in_train_role, tmp_path):
    webgym_pictures(tmp_path, "one")
    value = {"trajectories": [webgym_episode("one")], "metadata": {"split": "train"}}
    paths = [(str(tmp_path / "train_trajectories" / f"x.pt.iteration{int(new)}"), new) for new in (False, True)]
    (tmp_path / "train_trajectories").mkdir()
    tensors = tmp_path / "tensors.pt"
    given = {"values": [value], "protocol": 2, "paths": paths, "tensors": str(tensors)}
    in_train_role("-c", WRITER + SAVE, stdin=json.dumps(given))
    digests = set()
    for path, _ in paths:
        (result,) = read(type(tmp_path)(path), None)
        assert isinstance(result, ImportedEpisode)
        assert [step.picture.is_file() for step in result.steps] == [True, True]
        digests.add(result.digest)
    assert len(digests) == 1
    with pytest.raises(PickleRefused, match=r"torch\._utils"):
        read_pickle(tensors, RECORDS)
