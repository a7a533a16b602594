import json
import struct

import pytest

from webgym_cli.store.weights import is_complete_file, list_tensors, read_header


def written(path, tensors, data=b"", metadata=None):
    head = json.dumps(({"__metadata__": metadata} if metadata else {}) | tensors).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)
    return path


def tensor(kind, shape, end):
    return {"dtype": kind, "shape": shape, "data_offsets": [0, end]}


def test_the_tensors_of_a_folder_in_the_order_of_its_files(tmp_path):
    written(tmp_path / "b.safetensors", {"norm": tensor("F32", [4], 16)})
    written(tmp_path / "a.safetensors", {"w": tensor("BF16", [2, 3], 12)}, metadata={"format": "pt"})
    assert list(list_tensors(tmp_path)) == [("w", "BF16", (2, 3)), ("norm", "F32", (4,))]


def test_whole_is_as_long_as_the_header_says(tmp_path):
    file = written(tmp_path / "a.safetensors", {"w": tensor("F32", [2], 8)}, b"0" * 8)
    assert is_complete_file(file)
    data = file.read_bytes()
    for cut in (data[:-1], data[:10], data[:4], b"", b"\xff" * 20, data + b"0"):
        file.write_bytes(cut)
        assert not is_complete_file(file)
    file.unlink()
    assert not is_complete_file(file)
    for content in (b"", b"1234567", b"\xff" * 20, struct.pack("<Q", 2) + b"[]"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.safetensors"):
            read_header(file)
