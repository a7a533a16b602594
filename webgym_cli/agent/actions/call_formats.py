"""Call formats: the description of tools in the prompt, the syntax of calls, and the rendering of their results.

A call format is a value of `agent.call_format`. All of it is plain text in messages, so any server can render it, no
server-side parser is involved, and responses are stored as sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from webgym_cli.agent.actions.action_sets import CALL_FORMATS as CALL_FORMATS  # plugins import it from here
from webgym_cli.agent.actions.action_sets import ActionSet
from webgym_cli.agent.actions.parse import ParseError, make_no_call_error
from webgym_cli.agent.forms.reasoning import history_text, strip_reasoning
from webgym_cli.agent.forms.sanitize import sanitize_page, sanitize_text
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.records.tool import ToolCall
from webgym_cli.records.trajectory import Observation, ParseErrorKind, PromptSpec, Step
from webgym_cli.records.webrl import AnyAction
from webgym_cli.util.optional import when

_PARSE_ERROR = "The last reply could not be read: {}. Nothing was called."
_SYSTEM = "You answer questions. When you know the answer, give it without calling a tool."
# Tool schemas in OpenAI's format.
Schemas = Sequence[dict[str, Any]]
# Calls as (name, arguments), and the text around them; without calls the text is the answer.
Reading = tuple[Sequence[tuple[str, Any]], str]


def make_call_format(
    describe: Callable[[Schemas], str],
    read: Callable[[str, Schemas], Reading | ParseError],
    write: Callable[[str, Sequence[tuple[str, dict[str, Any]]]], str],
    write_result: Callable[[str], str],
) -> ActionSet:
    """Make a call format.

    `describe` returns the description of the tools for the system message. `read` parses a response without its
    reasoning and raises `ValueError` with the reason if it can't; one unreadable call invalidates the whole response.
    `write` is its inverse, for experts: it formats the text around the calls, or the answer, and the calls.
    `write_result` formats a call's result.
    """

    def parse(response: str, spec: PromptSpec, *, truncated: bool, max_calls: int) -> AnyAction | ParseError:
        try:
            reading = read(strip_reasoning(response, thinking=spec.thinking), spec.tools or ())
            if isinstance(reading, ParseError):
                is_open = reading.kind is ParseErrorKind.NO_TOOL_CALL
                return make_no_call_error(reading.detail, truncated=truncated) if is_open else reading
            if not reading[0] and (truncated or not reading[1].strip()):
                return make_no_call_error("a call that does not end, or nothing at all", truncated=truncated)
            return _make_action(*reading, limit=max_calls)
        except ValueError as error:
            return ParseError.of_arguments(error)

    def format_action(action: AnyAction, mode: InteractionMode) -> str:
        if not isinstance(action, Action):
            raise ValueError(f"the call format has no action {action.name}")
        return write(action.text or "", [(call.name, call.arguments) for call in action.calls or ()])

    def render(
        spec: PromptSpec, instruction: str, past: Sequence[Step], current: Observation
    ) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """Return messages and images of the prompt for the current observation, with all rounds in full."""
        parts = [spec.system_prompt or _SYSTEM, *([describe(spec.tools)] if spec.tools else [])]
        messages = [Message(role="system", content="\n\n".join(parts))]
        first, *observations = (*(step.observation for step in past), current)
        pictures = f"{IMAGE}\n" * len(first.pictures)
        messages.append(Message(role="user", content=pictures + sanitize_page(instruction)))
        for step, observation in zip(past, observations, strict=True):
            reply = history_text(step.response, thinking=spec.thinking)
            messages.append(Message(role="assistant", content=sanitize_text(reply)))
            messages.append(Message(role="user", content="\n".join(_format_results(step, observation, write_result))))
        images = (picture.sha256 for observation in (first, *observations) for picture in observation.pictures)
        return tuple(messages), tuple(images)

    return ActionSet(
        parse=parse, format_action=format_action, render=render, describe=describe, write_result=write_result
    )


def _make_action(calls: Sequence[tuple[str, Any]], text: str, *, limit: int) -> Action | ParseError:
    if len(calls) > limit:
        return ParseError(ParseErrorKind.SEVERAL_TOOL_CALLS, f"{len(calls)} calls, {limit} are allowed")
    if not calls:
        return Action(name=ActionName.ANSWER, text=text.strip())
    tool_calls = tuple(ToolCall(name=name, arguments=arguments) for name, arguments in calls)
    return Action(name=ActionName.CALL, calls=tool_calls, text=text.strip() or None)


def _format_results(step: Step, after: Observation, write_result: Callable[[str], str]) -> Iterator[str]:
    """Yield the step's error, if any, and the result of each call."""
    if step.parse_error is not None:
        yield _PARSE_ERROR.format(step.parse_error)
    elif step.action_error is not None:
        yield sanitize_page(step.action_error)
    for result in after.results:
        picture = when(result.image, f"{IMAGE}\n")
        yield write_result(f"{picture}{sanitize_page(result.text)}")
