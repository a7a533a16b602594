"""Action sets: the actions of a policy, their description in the prompt, and the parsing of responses.

An action set is a value of `context_config.prompt_version`; environments with tools use a call format
(`agent.call_format`, `call_formats.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, Protocol

from webgym_cli.agent.actions.parse import ParseError
from webgym_cli.agent.forms.action_forms import WebActions
from webgym_cli.agent.forms.reasoning import strip_reasoning
from webgym_cli.agent.prompts.prompt_template import PromptTemplate
from webgym_cli.agent.prompts.vanilla import render_plain_head, render_plain_turn
from webgym_cli.config.model import Settings
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.sample import Message
from webgym_cli.records.trajectory import Observation, ParseErrorKind, PromptSpec, Step
from webgym_cli.records.webrl import AnyAction
from webgym_cli.util.registry import Registry, list_constants
from webgym_cli.util.user_code import is_own

# A screenshot, or the page as text.
ObservationKind = Literal["picture", "text"]
# Messages, and the SHA-256 of their images in order.
Conversation = tuple[tuple[Message, ...], tuple[str, ...]]
RenderFn = Callable[[PromptSpec, str, Sequence[Step], Observation], Conversation]


class ResponseParser(Protocol):
    """Parser of responses."""

    def __call__(self, response: str, spec: PromptSpec, *, truncated: bool, max_calls: int) -> AnyAction | ParseError:
        """Return the action of a response, or why there is none. `truncated`: it reached its length limit."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSet:
    """The actions of a policy: their prompt, parser and writer. The environment executes them."""

    parse: ResponseParser
    format_action: Callable[[AnyAction, InteractionMode], str]
    """Returns a response that `parse` reads as the action; used by experts."""
    template: PromptTemplate | None = None
    """Texts of a prompt whose rounds show screenshots; None if `render` is set."""
    modes: tuple[InteractionMode, ...] = tuple(InteractionMode)
    actions: WebActions | None = None
    """The actions as arguments of one function; None if they are written otherwise."""
    with_dialogs: ActionSet | None = None
    """Variant that can answer dialogs, used if they are left to the policy; None: the set has no variant."""
    with_more: ActionSet | None = None
    """Variant with the actions of `context_config.more_actions`; None: the set has no variant."""
    observes: ObservationKind = "picture"
    """How a page is shown to the policy. Environments accept the sets of all kinds that they can show."""
    prompt_options: Callable[[Settings], dict[str, Any]] = lambda settings: {}
    """Returns `PromptSpec.options`: what only this set's prompts have, as JSON values."""
    render: RenderFn | None = None
    """Renders the whole prompt, in place of a template, from instruction, finished steps and current observation."""
    render_episode: RenderFn | None = None
    """As `render`, for an export of a whole episode: every page in full, an assistant's message for each finished step.
    None: by the template, or without one as the prompt of the last step."""
    describe_step: Callable[[PromptSpec, Step], str] | None = None
    """Returns the line of a step for an outcome reward model; None: its action, as in a history."""
    describe: Callable[[Sequence[dict[str, Any]]], str] | None = None
    """Returns the description of tools for a system message; call formats only."""
    write_result: Callable[[str], str] | None = None
    """Returns the result of a call as it stands in a user message; call formats only."""

    def choose_variant(self, *, dialogs: bool, more: bool) -> ActionSet:
        """Return the variant that can answer dialogs, and the one with more actions, where it exists."""
        chosen = (dialogs and self.with_dialogs) or self
        return (more and chosen.with_more) or chosen


ACTION_SETS: Registry[ActionSet] = Registry(
    noun="action set",
    setting="context_config.prompt_version",
    item_type=ActionSet,
    builtin={
        **list_constants(
            "webgym_cli.agent.actions.builtin_action_sets",
            *("vanilla", "complete", "full", "full_vanilla", "webgym", "webgym_vanilla", "computer_use"),
            *("webrl", "webrl_released"),
        ),
        **list_constants("webgym_cli.agent.actions.ui_tars", "ui_tars"),
    },
    usage="from webgym_cli.agent.actions.action_sets import make_action_set, and make one",
)
CALL_FORMATS: Registry[ActionSet] = Registry(
    noun="call format",
    setting="agent.call_format",
    item_type=ActionSet,
    builtin=list_constants("webgym_cli.agent.actions.builtin_call_formats", "hermes", "qwen", "react", "code"),
    usage="from webgym_cli.agent.actions.call_formats import make_call_format, and make one",
)


def find_action_set(spec: PromptSpec) -> ActionSet:
    """Return the action set of a prompt. Raises `UsageError`."""
    if spec.tools is not None:
        return CALL_FORMATS.find_stored(spec.call_format)
    return ACTION_SETS.find_stored(str(spec.version)).choose_variant(dialogs=spec.dialogs, more=spec.more_actions)


def list_user_functions(actions: ActionSet) -> list[Callable[..., Any]]:
    """Return those functions of an action set or a call format that are no code of webgym's."""
    functions: list[Callable[..., Any] | None] = [
        actions.parse,
        actions.format_action,
        actions.render,
        actions.describe,
        actions.write_result,
    ]
    if (template := actions.template) is not None:
        functions += [template.system, template.head, template.turn]
    return [function for function in functions if function is not None and not is_own(function)]


def is_text(spec: PromptSpec) -> bool:
    """Whether a prompt shows pages as text. Raises `UsageError` for an unknown action set."""
    return find_action_set(spec).observes == "text"


def require_template(spec: PromptSpec) -> PromptTemplate:
    """Return the template of a prompt. Raises `ValueError` if its action set renders without one."""
    template = find_action_set(spec).template
    if template is None:
        raise ValueError(f"the action set {spec.version} renders its prompts without a template")
    return template


def make_action_set(
    system_prompt: str, parse: Callable[[str], AnyAction], format_action: Callable[[AnyAction], str]
) -> ActionSet:
    """Make an action set whose prompt has screenshot, notices, elements and text of each observation.

    `system_prompt` describes the actions. `parse` gets a response without its reasoning and raises `ValueError` with
    the reason if it contains no action. Pages are operated by `Action`; a `CustomAction` is for an environment of one's
    own.
    """

    @wraps(parse, updated=())  # so it counts as the user's
    def read(response: str, spec: PromptSpec, *, truncated: bool, max_calls: int) -> AnyAction | ParseError:
        try:
            return parse(strip_reasoning(response, thinking=spec.thinking))
        except ValueError as error:
            kind = ParseErrorKind.TRUNCATED if truncated else ParseErrorKind.INVALID_ARGUMENTS
            return ParseError(kind, str(error))

    return ActionSet(
        parse=read,
        format_action=lambda action, mode: format_action(action),
        template=PromptTemplate(lambda mode: system_prompt, render_plain_head, render_plain_turn),
    )
