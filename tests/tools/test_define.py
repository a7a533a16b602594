import enum
import zlib
from io import BytesIO
from typing import Annotated, Literal

import pytest
from PIL import Image
from pydantic import BaseModel, Field

from tests.records.builders import png
from tests.tables import each
from webgym_cli.errors import UsageError
from webgym_cli.tools import ToolOutput, tool
from webgym_cli.tools.define import to_output
from webgym_cli.tools.schema import BadArgumentsError, check_arguments


class Colour(enum.Enum):
    RED = "red"


class Place(BaseModel):
    title: str
    floor: int = 0


@tool
def search(query: str, limit: int = 5, *, kind: Literal["book", "film"] = "book", json: list[str] | None = None) -> str:
    """Search the catalogue.

    In the whole house.

    Args:
        query: What to look for,
            in words.
        limit (int): How many.

    Returns:
        Titles.
    """
    return f"{query} {limit} {kind} {json}"


def test_a_schema_comes_from_signature_and_docstring():
    assert search.schema == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the catalogue.\n\nIn the whole house.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What to look for, in words."},
                    "limit": {"type": "integer", "default": 5, "description": "How many."},
                    "kind": {"type": "string", "enum": ["book", "film"], "default": "book"},
                    "json": {
                        "anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}],
                        "default": None,
                    },
                },
                "required": ["query"],
                "additionalProperties": False,
            },
        },
    }


def test_a_parameter_without_any_is_an_empty_object_and_the_style_of_rest_is_read():
    @tool
    def now() -> str:
        """Tell the time."""
        return "now"

    @tool
    def add(a: int, b: int) -> int:
        """Add.

        :param a: The first,
            a number.
        :param int b: The second.
        :returns: The sum.
        """
        return a + b

    assert now.schema["function"]["parameters"] == {"type": "object", "properties": {}, "additionalProperties": False}
    properties = add.schema["function"]["parameters"]["properties"]
    assert [properties[name]["description"] for name in "ab"] == ["The first, a number.", "The second."]
    assert add.description == "Add."


def test_a_parameter_is_described_by_its_annotation_unless_the_docstring_does():
    @tool
    def go(
        a: Annotated[int, Field(description="A.", le=3)], b: Annotated[str, "B."], c: Annotated[str, "-"] = ""
    ) -> str:
        """Go.

        Args:
            c: C.
        """
        return f"{a}{b}{c}"

    parameters = go.schema["function"]["parameters"]
    assert [parameters["properties"][name]["description"] for name in "abc"] == ["A.", "B.", "C."]
    assert (parameters["required"], parameters["properties"]["a"]["maximum"]) == (["a", "b"], 3)


def test_types_of_all_kinds_and_a_property_called_title():
    @tool
    def go(colour: Colour, place: Place, speed: Annotated[float, Field(gt=0)], title: str) -> str:
        """Go."""
        return f"{colour.name} {place.title} {speed}"

    parameters = go.schema["function"]["parameters"]
    assert parameters["properties"]["speed"] == {"type": "number", "exclusiveMinimum": 0}
    assert parameters["properties"]["title"] == {"type": "string"}
    assert parameters["$defs"]["Place"]["properties"] == {
        "title": {"type": "string"},
        "floor": {"type": "integer", "default": 0},
    }
    arguments = check_arguments(go.arguments, {"colour": "red", "place": {"title": "x"}, "speed": "2", "title": "t"})
    assert go(**arguments) == "RED x 2.0"


@each(
    ("arguments", "reason"),
    [
        ({}, "the argument query is missing"),
        ({"query": "a", "lmit": 1}, "there is no argument lmit"),
        ({"query": "a", "limit": "many"}, "limit: "),
        ({"query": "a", "kind": "song"}, "kind: "),
        ({"query": 3}, "query: "),
    ],
)
def test_arguments_that_do_not_fit_are_told_by_name(arguments, reason):
    with pytest.raises(BadArgumentsError, match=reason):
        check_arguments(search.arguments, arguments)


def test_arguments_come_in_their_types_and_without_defaults():
    given = check_arguments(search.arguments, {"query": "a", "limit": "3", "json": ["x"]})
    assert given == {"query": "a", "limit": 3, "json": ["x"]}
    assert search(**given) == "a 3 book ['x']"


def test_a_class_is_made_anew_by_each_call_in_python():
    @tool(name="counter-1", description="Counts.", terminal=True, timeout=2.5, max_length=9)
    class Counter:
        def __init__(self):
            self.count = 0

        def __call__(self, by: int) -> int:
            """Count.

            Args:
                by: How far.
            """
            self.count += by
            return self.count

    assert (Counter(by=2), Counter(by=2)) == (2, 2)
    result = (Counter.name, Counter.stateful, Counter.terminal, Counter.timeout, Counter.max_length)
    assert result == ("counter-1", True, True, 2.5, 9)
    assert list(Counter.schema["function"]["parameters"]["properties"]) == ["by"]
    assert Counter.schema["function"]["parameters"]["properties"]["by"]["description"] == "How far."


def nameless(text):
    """Do."""


def variadic(*texts: str):
    """Do."""


def undocumented(text: str):
    return text


def unknown_type(text: "Nowhere"):  # noqa: F821
    """Do."""


def without_schema(text: pytest.MonkeyPatch):
    """Do."""


class NoCall:
    """Do."""


def yields(n: int):
    """Count."""
    yield n


class YieldsLater:
    """Count."""

    async def __call__(self, n: int):
        yield n


class NeedsMore:
    """Do."""

    def __init__(self, key: str):
        self.key = key

    def __call__(self) -> str:
        return self.key


@each(
    ("given", "reason"),
    [
        (nameless, "tool nameless: the parameter text has no type"),
        (variadic, r"tool variadic: \*texts: ?'?str'? can't be told"),
        (undocumented, "tool undocumented: the policy is not told what it does"),
        (unknown_type, "tool unknown_type: its types can't be read: name 'Nowhere'"),
        (without_schema, "tool without_schema: its parameters have no JSON schema"),
        (yields, "tool yields: it yields"),
        (YieldsLater, "tool YieldsLater: it yields"),
        (NoCall, "tool NoCall: the class has no __call__"),
        (NeedsMore, "tool NeedsMore: it is made with no argument but context, and needs key"),
    ],
)
def test_what_cannot_be_described_is_refused_when_it_is_decorated(given, reason):
    with pytest.raises(UsageError, match=reason):
        tool(given)


class Picture:
    """Saves itself as Pillow's images do."""

    def save(self, target, format):
        assert format == "PNG"
        target.write(png())


@each(
    ("value", "output"),
    [
        ("text", ToolOutput("text")),
        (None, ToolOutput("")),
        (3.5, ToolOutput("3.5")),
        ({"a": [1, "ä"]}, ToolOutput('{"a": [1, "ä"]}')),
        (ToolOutput("x", terminal=True), ToolOutput("x", terminal=True)),
        ({"observation": "x", "status": "terminal"}, ToolOutput("x", None, True)),
        ({"observation": {"n": 1}, "image": png()}, ToolOutput('{"n": 1}', png())),
        ({"image": Picture()}, ToolOutput("", png())),
        ({"observation": "x", "score": 1}, ToolOutput("x", info={"score": 1})),
    ],
)
def test_what_a_tool_returns_becomes_its_output(value, output):
    assert to_output(value) == output


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_on_white(mode):
    buffer = BytesIO()
    picture = Image.new("RGBA", (8, 4))
    (picture.quantize(2) if mode == "P" else picture.convert(mode)).save(buffer, "PNG")
    for value in (buffer.getvalue(), Image.open(buffer)):
        result = Image.open(BytesIO(to_output({"image": value}).image))
        assert (result.mode, result.size, result.getpixel((1, 1))) == ("RGB", (8, 4), (255, 255, 255))


def chunk(kind, data):
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def test_a_transparency_far_from_the_beginning_and_a_cut_off_orientation(monkeypatch):
    buffer = BytesIO()
    Image.new("RGB", (8, 4)).save(buffer, "PNG", transparency=(0, 0, 0))
    png_bytes = buffer.getvalue()
    for extra in (chunk(b"tEXt", b"a\0" + b"b" * 5000), chunk(b"eXIf", b"MM\0*")):
        result = Image.open(BytesIO(to_output({"image": png_bytes[:33] + extra + png_bytes[33:]}).image))
        assert (result.mode, result.getpixel((1, 1))) == ("RGB", (255, 255, 255))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(ValueError, match="no PNG"):
        to_output({"image": png_bytes})


def test_a_turned_image_is_upright_and_an_opaque_one_is_kept():
    exif, turned, opaque = Image.Exif(), BytesIO(), BytesIO()
    exif[0x0112] = 8
    Image.new("RGB", (8, 4)).save(turned, "PNG", exif=exif)
    assert Image.open(BytesIO(to_output({"image": turned.getvalue()}).image)).size == (4, 8)
    Image.new("RGBA", (8, 4), "red").save(opaque, "PNG")
    assert to_output({"image": opaque.getvalue()}).image == opaque.getvalue()


def test_options_that_make_no_sense_are_refused():
    for options in ({"name": "no spaces"}, {"timeout": 0}, {"max_length": -1}, {"fields": ["x"]}):
        with pytest.raises(UsageError):
            tool(**options)(search.make())


def test_what_is_no_output_is_refused():
    for image, reason in ((b"GIF89a", "no PNG"), (png()[:25] + b"\x06", "no PNG"), ("a.png", "is a str")):
        with pytest.raises((TypeError, ValueError), match=reason):
            to_output({"image": image})
