"""The reading of pickles: right about data, and deaf to orders."""

import builtins
import collections
import datetime
import gzip
import io
import os
import pathlib
import pickle
import re
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.imports.foreign import pickled, thing, torch_archive
from tests.tables import each
from webgym_cli.imports import pickled as machine
from webgym_cli.imports.pickle_stubs import PickleRefused, Stub
from webgym_cli.imports.pickled import TORCH_MAGIC, load, read_pickle

RECORDS = frozenset({"webgym.data.components.Task", "webgym.data.components.Reward"})
TASK = "webgym.data.components.Task"
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**80), max_value=2**80),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
)
DATA = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner), st.tuples(inner), st.tuples(inner, inner, inner, inner), st.dictionaries(ATOMS, inner)
    ),
    max_leaves=30,
)


def read(content, known=RECORDS):
    return load(io.BytesIO(content), known, "file.pt")


@given(value=DATA, protocol=st.sampled_from(PROTOCOLS))
def test_it_reads_data_as_pickle_does(value, protocol):
    content = pickle.dumps(value, protocol)
    assert read(content) == pickle.loads(content)


@each("protocol", PROTOCOLS)
def test_records_become_their_names_and_fields_and_shared_parts_stay_shared(protocol):
    task = thing(TASK, task_name="a", extra=[1, {"b": 2}])
    result = read(pickled([task, {"reward": thing("webgym.data.components.Reward", reward=1)}], protocol=protocol))
    assert isinstance(result[0], Stub)
    assert (result[0].name, result[0].fields) == (TASK, {"task_name": "a", "extra": [1, {"b": 2}]})
    assert result[1]["reward"].get("reward") == 1
    shared = [1]
    twice = read(pickle.dumps([shared, shared], protocol))
    assert twice[0] is twice[1]


@each("protocol", PROTOCOLS)
def test_plain_things_of_the_standard_library_are_data(protocol):
    value = [
        collections.OrderedDict(a=1),
        collections.defaultdict(list, {"b": [2]}),
        {3},
        frozenset({4}),
        pathlib.PosixPath("/a/b"),
        bytearray(b"5"),
    ]
    assert read(pickle.dumps(value, protocol)) == [{"a": 1}, {"b": [2]}, [3], [4], "/a/b", b"5"]
    moment = read(pickle.dumps(datetime.datetime(2026, 1, 2), protocol))
    assert moment.name == "datetime.datetime"


class Order:
    """An object whose pickle orders a call."""

    def __init__(self, function, *arguments, state=None):
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.reduced


def touching(path):
    return f"open({str(path)!r}, 'w').close()"


def attacks(path):
    """Pickles that make a file when they are loaded by pickle."""
    touch = f"touch {path}"
    text = str(path)
    yield "os.system", pickle.dumps(Order(os.system, touch))
    yield "builtins.eval", pickle.dumps(Order(eval, touching(path)))
    yield "builtins.exec", pickle.dumps(Order(exec, touching(path)), 2)
    yield "subprocess", pickle.dumps(Order(subprocess.check_call, ("touch", text)))
    yield "open", pickle.dumps(Order(open, text, "w"))
    chain = b"c__builtin__\ngetattr\n(c__builtin__\n__import__\n(S'os'\ntRS'system'\ntR(S'"
    yield "chained getattr", chain + touch.encode() + b"'\ntR."
    yield "dotted name", b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c" + bytes([len(touch)]) + touch.encode() + b"\x85R."
    yield "protocol 0", b"cos\nsystem\n(S'" + touch.encode() + b"'\ntR."
    yield "INST", b"(S'" + touch.encode() + b"'\nios\nsystem\n."
    yield "OBJ", b"(c__builtin__\neval\nS'" + touching(path).replace("'", '"').encode() + b"'\no."
    yield "within a record", pickle.dumps({"trajectories": [[{"reward": Order(os.system, touch)}]]}, 2)
    yield "partial", pickle.dumps(Order(builtins.list, Order(map, os.system, [touch])), 4)


@pytest.mark.parametrize("name", [name for name, _ in attacks(pathlib.Path("x"))])
@pytest.mark.parametrize("form", ["plain", "torch", "gzip", "behind torch's old magic"])
def test_a_hostile_pickle_runs_nothing_and_is_named(name, form, tmp_path):
    result = tmp_path / "made"
    content = dict(attacks(result))[name]
    if form == "plain":
        victim = [sys.executable, "-S", "-c", "import pickle, sys; pickle.load(sys.stdin.buffer)"]
        subprocess.run(victim, input=content, check=False)
        assert result.exists(), "this attack does not work at all"
        result.unlink()
    file = tmp_path / "x.pt.iteration1"
    if form == "torch":
        torch_archive(file, content)
    elif form == "gzip":
        file.write_bytes(gzip.compress(content))
    else:
        before = b"".join(pickle.dumps(value, 2) for value in (TORCH_MAGIC, 1001, {"little_endian": True}))
        file.write_bytes(content if form == "plain" else before + content)
    with pytest.raises(PickleRefused) as refused:
        read_pickle(file, RECORDS)
    assert str(refused.value).startswith(f"{file}: ") and "\n" not in str(refused.value)
    assert not result.exists()


def test_a_state_that_brings_its_own_methods_is_only_fields():
    """`__setstate__`, `__class__` and the like are words among the fields, and never become attributes of ours."""
    content = pickled(thing(TASK, __setstate__="x", __class__="y", __dict__="z", build="w", get="v"))
    result = read(content)
    assert type(result) is Stub
    assert result.fields == {"__setstate__": "x", "__class__": "y", "__dict__": "z", "build": "w", "get": "v"}
    assert callable(result.get)


@pytest.mark.parametrize(
    "content",
    [
        b"cwebgym.data.components\nTask\n}S'__setstate__'\nI1\nsb.",  # a state for the class itself
        b"cwebgym.data.components\nTask\n(tR(tR.",  # calling what was made
        b"(lI1\nb.",  # a state for a list
        b"(lp0\n(S'a'\nI1\nu.",  # entries of a dict for a list
        b"]\x94(h\x00\x85h\x00t\x85}\x94h\x00I1\ns.",  # a list as a key
        b"\x80\x02}(((tttI1\nu.",  # a tuple as a key
        b"cwebgym.data.components\nTask.__init__\n.",
        b"c__builtin__\nbytes\n(I1000000000000\ntR.",  # a terabyte of zeros
        b"cwebgym.data.components\nTask\np0\n0g1\n.",  # a memo that is not there
        b"Punknown\n.",
        b"\x80\x02X\x01\x00\x00\x00aQ.",  # persistent ids: tensors
        b"\x80\x02\x82\x01.",  # the registry of extensions
        b"\x80\x05\x97.",  # buffers from elsewhere
        b"0.",
        b".",
        b"",
        b"garbage",
        b"((((.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",  # a frame of 9 exabytes
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fx.",  # a text of 9 exabytes
        b"\x80\x04B\xff\xff\xff\xffx.",
        b"\x80\x02\x8b\xff\xff\xff\x7f\x01.",  # a number of 2 GB
        b"L" + b"9" * 10_000 + b"L\n.",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7fx.",  # a byte array of 9 exabytes
        b"c__builtin__\nset\n(N}S'__code__'\nI1\nstb.",  # attributes for what does the work here
        b"c__builtin__\nset\n}S'__defaults__'\nNsb.",
    ],
)
def test_what_is_no_whole_data_is_refused_in_one_line(content, tmp_path):
    file = tmp_path / "x"
    file.write_bytes(content)
    with pytest.raises(PickleRefused) as refused:
        read_pickle(file, RECORDS)
    assert str(refused.value).startswith(f"{file}: ") and "\n" not in str(refused.value)


def test_nesting_of_any_depth_is_read_without_recursion_and_a_huge_memo_number_costs_nothing():
    assert read(b"I1\nr\xff\xff\xff\x7f.") == 1
    result = read(b"]" * 200_000 + b"a" * 199_999 + b".")
    for _ in range(199_999):
        (result,) = result
    assert result == []


def test_operations_are_limited(monkeypatch):
    monkeypatch.setattr(machine, "MAX_OPERATIONS", 50)
    assert read(pickle.dumps([1] * 10, 2)) == [1] * 10
    with pytest.raises(PickleRefused, match="more than 50 operations"):
        read(pickle.dumps([1] * 100, 2))


DEEP = b"(" * 100_000 + b"t" * 100_000
ENDLESS = b"]q\0" + b"".join(b"0(h%ch%clq%c" % (n, n, n + 1) for n in range(60))
"""A list whose text would have 2**60 parts."""


@pytest.mark.parametrize("nested", [DEEP, ENDLESS], ids=["deep", "endless"])
@pytest.mark.parametrize(
    "wrapped",
    [
        b"(d" + b"%sI1\ns.",  # a key
        b"ccollections\nOrderedDict\n((lp0\n(%sI1\nlatR.",  # a key in pairs
        b"c_codecs\nencode\n(%sS'latin1'\ntR.",
        b"c_codecs\nencode\n(S'a'\n%stR.",
        b"ccopy_reg\n_reconstructor\n(cwebgym.data.components\nTask\n%sNtR.",
    ],
    ids=range(5),
)
def test_nested_parts_where_words_are_expected_are_refused_at_once(nested, wrapped):
    with pytest.raises(PickleRefused) as refused:
        read(wrapped % nested, RECORDS)
    assert len(str(refused.value)) < 200


def test_a_gzip_bomb_stops_at_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("webgym_cli.imports.pickled.MAX_UNPACKED", 1000)
    file = tmp_path / "step_0.pkl.gz"
    file.write_bytes(gzip.compress(pickle.dumps(b"x" * 5000)))
    with pytest.raises(PickleRefused, match="not a whole pickle"):
        read_pickle(file, RECORDS)


def test_archives_that_torch_did_not_write_are_refused(tmp_path):
    content = pickle.dumps([1], 2)
    assert read_pickle(torch_archive(tmp_path / "a", content), RECORDS) == [1]
    cut = tmp_path / "c"
    cut.write_bytes((tmp_path / "a").read_bytes()[:-30])
    encrypted = tmp_path / "e"  # by a bit of its entries' flags
    whole = (tmp_path / "a").read_bytes()
    encrypted.write_bytes(re.sub(b"(PK(?:\x03\x04|\x01\x02\x14.)\x14\0)\0", b"\\1\1", whole, flags=re.DOTALL))
    forged = b"\x80\x02T" + struct.pack("<I", 2**31 - 1) + b"abc."
    for file, words in (
        (torch_archive(tmp_path / "b", content, packed=True), "packed, which torch never does"),
        (cut, "can't be read"),
        (encrypted, "can't be read: .* is encrypted"),
        (torch_archive(tmp_path / "d", forged), "not a whole pickle"),
    ):
        with pytest.raises(PickleRefused, match=words):
            read_pickle(file, RECORDS)
