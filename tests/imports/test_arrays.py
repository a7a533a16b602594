"""Numpy's arrays, written by numpy and read without it."""

import pickle

import numpy
import pytest

from tests.imports.test_pickled import read
from webgym_cli.imports import arrays
from webgym_cli.imports.arrays import NUMPY, Array, Dtype
from webgym_cli.imports.pickle_stubs import AllowedNames, PickleRefused

KNOWN = AllowedNames(makers=NUMPY)
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", sorted(arrays.CODES))
def test_numbers_of_every_kind_are_read(kind, protocol):
    values = numpy.asarray([[0, 1, 1], [1, 0, 1]], dtype=kind)
    found = read(pickle.dumps(values, protocol), KNOWN)
    assert isinstance(found, Array)
    assert (found.shape, found.numbers()) == ((2, 3), values.flatten().tolist())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_big_endian_numbers_and_single_numbers_are_read(protocol):
    big = numpy.asarray([1.5, -2.0], dtype=">f8")
    assert read(pickle.dumps(big, protocol), KNOWN).numbers() == [1.5, -2.0]
    single = [numpy.float64(1.5), numpy.int64(-7), numpy.bool_(True)]
    assert read(pickle.dumps(single, protocol), KNOWN) == [1.5, -7, True]


def test_older_numpys_called_their_module_otherwise():
    content = pickle.dumps(numpy.asarray([3, 4]), 2).replace(b"numpy._core", b"numpy.core")
    assert b"numpy.core.multiarray" in content
    assert read(content, KNOWN).numbers() == [3, 4]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_picture_is_rows_of_pixels(protocol):
    picture = numpy.arange(2 * 3 * 4, dtype="uint8").reshape(2, 3, 4)
    found = read(pickle.dumps(picture, protocol), KNOWN)
    assert found.is_picture
    assert (found.shape, found.data) == ((2, 3, 4), picture.tobytes())


@pytest.mark.parametrize(
    "value",
    [
        numpy.asarray([None], dtype=object),
        numpy.asarray(["text"]),
        numpy.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
        numpy.asarray(["2026-01-01"], dtype="datetime64[D]"),
        numpy.asfortranarray(numpy.ones((3, 2))),
        numpy.asarray([1j]),
    ],
    ids=["objects", "texts", "records", "dates", "fortran", "complex"],
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_other_arrays_are_refused(value, protocol):
    content = pickle.dumps(value, protocol)
    with pytest.raises(PickleRefused):
        read(content, KNOWN)


@pytest.mark.parametrize(
    ("shape", "data"),
    [((3,), b"\0" * 2), ((2**62, 4), b""), ((-1, -2), b"\0" * 2), ((1.0,), b"\0"), ("ab", b"\0"), ((1,) * 9, b"\0")],
)
def test_a_forged_shape_is_refused(shape, data):
    with pytest.raises(PickleRefused):
        Array().build((1, shape, Dtype("u1"), False, data))


def test_large_arrays_are_not_made_into_lists():
    found = read(pickle.dumps(numpy.zeros(arrays.MAX_LISTED + 1, dtype="u1"), 2), KNOWN)
    with pytest.raises(PickleRefused, match="where a few are expected"):
        found.numbers()
