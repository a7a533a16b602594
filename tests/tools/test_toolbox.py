import asyncio
import threading
from io import BytesIO
from typing import Any

import pytest
from PIL import Image as pillow

from tests.records.builders import png
from webgym_cli.config.agent import AgentSettings
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.tool import ToolCall
from webgym_cli.tools import ToolOutput, tool
from webgym_cli.tools.define import EpisodeContext
from webgym_cli.tools.registry import require_record_fields
from webgym_cli.tools.toolbox import Toolbox, as_openai
from webgym_cli.tools.workers import Workers


def call(tool, **arguments):
    return ToolCall(name=tool, arguments=arguments)


def box(*tools, **limits):
    return Toolbox(tools, AgentSettings(**limits), Workers())


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
class Counter:
    """Counts the calls of an episode."""

    closed = 0

    def __init__(self):
        self.count = 0

    def __call__(self, by: int = 1) -> int:
        self.count += by
        return self.count

    def close(self):
        Counter.make.closed += 1


@tool(fields=["image_id", "branch"])
def look(path: str, image_id, branch: str = "main") -> str:
    """Look into a file."""
    return f"{image_id}:{branch}:{path}"


async def test_a_parameter_may_receive_a_field_of_the_record():
    record = {"image_id": 7, "answer": "42"}
    toolbox = Toolbox([look], AgentSettings(), Workers(), EpisodeContext(fields=record))
    call_result, guessed = await toolbox.call_all([call("look", path="a"), call("look", path="a", image_id=8)])
    assert (call_result.text, call_result.error) == ("7:main:a", False)
    assert (guessed.text, guessed.error) == ("Error: there is no argument image_id", True)
    assert look.schema["function"]["parameters"]["properties"].keys() == {"path"}


def test_a_record_without_a_field_that_a_tool_requires_is_refused():
    require_record_fields([echo, look], "t1", {"image_id": 7})
    with pytest.raises(UsageError, match=r"look .*image_id, .*task t2"):
        require_record_fields([echo, look], "t2", {"branch": "b"})


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (call("nothing"), "Error: there is no tool 'nothing'; there are: echo"),
        (call("echo"), "Error: the argument text is missing"),
        (call("echo", txt="a"), "Error: the argument text is missing; there is no argument txt"),
    ],
)
async def test_a_wrong_call_is_told_to_the_policy(wrong, text):
    (result,) = await box(echo).call_all([wrong])
    assert (result.text, result.error, result.terminal) == (text, True, False)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no\nsuch thing"), "Error: no such thing"),
        (KeyError("x"), "Error: KeyError: 'x'"),
        (ValueError(), "Error: ValueError"),
        (SystemExit(1), "Error: RuntimeError: SystemExit(1)"),
        (OSError(2, "gone"), "Error: FileNotFoundError: [Errno 2] gone"),
    ],
)
async def test_what_a_tool_raises_is_told_to_the_policy(error, text):
    @tool
    def fail() -> str:
        """Fail."""
        raise error

    (result,) = await box(fail).call_all([call("fail")])
    assert (result.text, result.error) == (text, True)


async def test_a_failure_of_infrastructure_is_none_of_the_policys():
    ended = []

    @tool
    def down() -> str:
        """Fail."""
        raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, "the service is down")

    @tool
    async def slow() -> str:
        """Take a moment."""
        await asyncio.sleep(0.01)
        ended.append(True)
        return ""

    with pytest.raises(BoundaryError, match="the service is down"):
        await box(down, slow).call_all([call("down"), call("slow")])
    assert ended == [True]


ENDLESS = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"observation": "x", "image": "a.png"}, "its image is a str"),
        (ToolOutput("x", "a.png"), "its image is a str"),
        (ToolOutput("x", info=[1]), "cannot convert"),
        (ENDLESS, "maximum recursion"),
    ],
)
async def test_what_is_no_output_is_a_failure_too(value, reason):
    @tool
    def odd() -> Any:
        """Return nonsense."""
        return value

    with pytest.raises(BoundaryError, match=f"the tool odd returned what is no output: {reason}"):
        await box(odd).call_all([call("odd")])


@pytest.mark.parametrize(("value", "text"), [(42, "42"), (None, ""), ([1, "ä"], '[1, "ä"]'), ("42", "42")])
async def test_an_output_may_have_any_value_and_picture_that_a_tool_may_return(value, text):
    @tool
    def look() -> ToolOutput:
        """Look."""
        return ToolOutput(value, pillow.open(BytesIO(png())))

    (result,) = await box(look).call_all([call("look")])
    assert (result.text, result.error, bool(result.image)) == (text, False, True)


async def test_calls_of_one_turn_run_side_by_side_and_keep_their_order():
    meeting = threading.Barrier(3, timeout=30)

    @tool
    def meet(name: str) -> str:
        """Wait for the others."""
        meeting.wait()
        return name

    assert await texts(box(meet), *(call("meet", name=name) for name in "abc")) == ["a", "b", "c"]


async def texts(toolbox, *calls):
    return [result.text for result in await toolbox.call_all(calls)]


async def test_the_state_of_a_tool_belongs_to_one_episode():
    first, second = box(Counter), box(Counter)
    assert await texts(first, call("Counter"), call("Counter", by=5), call("Counter")) == ["1", "6", "7"]
    assert await texts(first, call("Counter")) == ["8"]
    assert await texts(second, call("Counter")) == ["1"]
    closed = Counter.make.closed
    await first.close()
    await first.close()
    assert Counter.make.closed == closed + 1
    assert await texts(first, call("Counter")) == ["1"]


async def test_a_call_that_does_not_end_is_given_up_and_its_state_with_it():
    @tool(timeout=0.05)
    class Stuck:
        """Hangs at the second call."""

        def __init__(self):
            self.count = 0

        def __call__(self) -> int:
            self.count += 1
            while self.count == 2:
                sum(range(1000))
            return self.count

    lost = "Error: stopped after 0.05 s; its state is lost"
    assert await texts(box(Stuck), *[call("Stuck")] * 3) == ["1", lost, "1"]


async def test_the_settings_limit_tools_without_a_limit_of_their_own():
    @tool
    async def wait() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    @tool(max_length=4)
    def short() -> str:
        """Return much."""
        return "abcdefgh"

    calls = [call("wait"), call("short"), *(call("echo", text="1" * length) for length in (2050, 2048))]
    assert await texts(box(wait, short, echo, tool_timeout=0.05), *calls) == [
        "Error: stopped after 0.05 s",
        "abcd\n[4 more characters are left out]",
        "1" * 2048 + "\n[2 more characters are left out]",
        "1" * 2048,
    ]


async def test_images_and_the_end_of_an_episode():
    @tool
    def draw() -> ToolOutput:
        """Draw."""
        return ToolOutput("drawn", png(), terminal=True)

    @tool(terminal=True)
    def end(well: bool) -> str:
        """End."""
        if not well:
            raise ValueError("not yet")
        return "done"

    results = await box(draw, end).call_all([call("draw"), call("end", well=False), call("end", well=True)])
    assert [result.terminal for result in results] == [True, False, True]
    assert results[0].image == png()


async def test_half_a_character_can_be_stored():
    @tool
    def half() -> str:
        """Return half a character."""
        return "\ud83d"

    assert await texts(box(half), call("half")) == ["?"]


def test_calls_in_openais_form():
    assert as_openai([call("echo", text="ä")], 3) == [
        {"id": "call_3", "type": "function", "function": {"name": "echo", "arguments": '{"text": "ä"}'}}
    ]
