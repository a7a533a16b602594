"""The built-in action sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from webgym_cli.agent.actions.action_sets import ActionSet, Conversation
from webgym_cli.agent.actions.parse import ParseError, parse_web_action
from webgym_cli.agent.actions.webrl_actions import parse_webrl_action
from webgym_cli.agent.forms import web_actions
from webgym_cli.agent.forms.action_forms import WebActions
from webgym_cli.agent.forms.reasoning import history_text
from webgym_cli.agent.forms.sanitize import sanitize_line
from webgym_cli.agent.forms.tools import describe_action, render_web_action
from webgym_cli.agent.forms.web_actions import add_actions
from webgym_cli.agent.forms.webrl_forms import render_webrl_action
from webgym_cli.agent.prompts import webrl_prompt
from webgym_cli.agent.prompts.memory_prompt import make_memory_template
from webgym_cli.agent.prompts.prompt_template import PromptTemplate
from webgym_cli.agent.prompts.vanilla import make_plain_template
from webgym_cli.records.action import ActionName, InteractionMode
from webgym_cli.records.trajectory import Observation, PromptSpec, Step
from webgym_cli.records.webrl import AnyAction, WebRLOptions


def _parse_webrl(response: str, spec: PromptSpec, *, truncated: bool, max_calls: int) -> AnyAction | ParseError:
    lenient = WebRLOptions(**spec.options).lenient
    return parse_webrl_action(response, truncated=truncated, thinking=spec.thinking, lenient=lenient)


def _make_web_set(
    actions: WebActions,
    make_template: Callable[[WebActions], PromptTemplate],
    with_dialogs: WebActions | None = None,
    *,
    is_extended: bool = False,
) -> ActionSet:
    """Make an action set of tool calls on a page. `with_dialogs`: its actions if dialogs are left to the policy."""

    def parse(response: str, spec: PromptSpec, *, truncated: bool, max_calls: int) -> AnyAction | ParseError:
        mode, thinking = spec.interaction_mode, spec.thinking
        return parse_web_action(response, mode, truncated=truncated, thinking=thinking, actions=actions)

    def write(action: AnyAction, mode: InteractionMode) -> str:
        return render_web_action(action, mode, actions)

    def write_with_sections(action: AnyAction, mode: InteractionMode) -> str:
        """Format an expert's tool call after its sections: no memory, one goal."""
        state = "done" if action.name is ActionName.ANSWER else "doing"
        sections = f'Memory: []\nProgress: {{"the task": "{state}"}}\nIntention: the task'
        return f"{sections}\nAction: {sanitize_line(describe_action(action))}\n{write(action, mode)}"

    with_memory = make_template is make_memory_template
    return ActionSet(
        parse=parse,
        format_action=write_with_sections if with_memory else write,
        template=make_template(actions),
        modes=tuple(actions.functions),
        actions=actions,
        with_dialogs=_make_web_set(with_dialogs, make_template) if with_dialogs else None,
        with_more=None if is_extended else _make_web_set(add_actions(actions), make_template, is_extended=True),
    )


def _render_webrl(
    spec: PromptSpec, instruction: str, past: Sequence[Step], current: Observation, *, every_page: bool = False
) -> Conversation:
    if every_page:
        spec = spec.model_copy(update={"options": spec.options | {"max_characters": None}})
    turns = webrl_prompt.render_conversation(spec, instruction, past, current, every_page=every_page)
    return (*webrl_prompt.render_system_message(spec), *turns), ()


def _describe_webrl_step(spec: PromptSpec, step: Step) -> str:
    """Return the response on one line, as WebRL's reward models were trained."""
    reply = history_text(step.response, thinking=spec.thinking).strip()
    return sanitize_line("; ".join(reply.splitlines()), None)


# A tool call on a page.
VANILLA = _make_web_set(web_actions.BASIC, make_plain_template)
# A tool call on a page, after memory, progress and intention.
COMPLETE = _make_web_set(web_actions.BASIC, make_memory_template)
# As `COMPLETE`, with all actions.
FULL = _make_web_set(web_actions.FULL, make_memory_template, web_actions.FULL_WITH_DIALOGS)
# As `FULL`, without memory and plan.
FULL_VANILLA = _make_web_set(web_actions.FULL, make_plain_template, web_actions.FULL_WITH_DIALOGS)
# As `COMPLETE`, with WebGym's actions.
WEBGYM = _make_web_set(web_actions.WEBGYM, make_memory_template)
# As `WEBGYM`, without memory and plan.
WEBGYM_VANILLA = _make_web_set(web_actions.WEBGYM, make_plain_template)
COMPUTER_USE = _make_web_set(web_actions.COMPUTER_USE, make_plain_template, web_actions.COMPUTER_USE_WITH_DIALOGS)


# WebRL's calls like `do(action="Click", element="12")`.
WEBRL = ActionSet(
    parse=_parse_webrl,
    format_action=lambda action, mode: render_webrl_action(action),
    observes="text",
    prompt_options=lambda settings: {
        "system_prompt": settings.agent.system_prompt,
        "explained": settings.context_config.explain_actions,
        "lenient": settings.context_config.lenient_actions,
        "max_characters": settings.context_config.max_characters,
    },
    render=_render_webrl,
    render_episode=partial(_render_webrl, every_page=True),
    describe_step=_describe_webrl_step,
)
# As `WEBRL`, in the single text on which WebRL's published models were trained.
WEBRL_RELEASED = replace(
    WEBRL,
    render=lambda spec, instruction, past, current: ((webrl_prompt.render_raw(spec, instruction, past, current),), ()),
)
