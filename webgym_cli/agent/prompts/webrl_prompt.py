"""The prompt version `webrl`: the task, the rounds in order, and the current page as text.

The rounds are WebRL's: earlier ones keep their response, and a placeholder replaces their page. As chat messages they
work with any model's template. Text of pages can't forge elements, turns or calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from webgym_cli.agent.forms.reasoning import history_text
from webgym_cli.agent.forms.sanitize import sanitize_page, sanitize_text
from webgym_cli.agent.prompts.prompt_template import format_failure, format_notices, format_tabs
from webgym_cli.records.sample import Message
from webgym_cli.records.trajectory import Observation, PromptSpec, Step
from webgym_cli.records.webrl import WebRLOptions
from webgym_cli.util.optional import when

# Replaces the page of an earlier round.
PAST_PAGE = "** Simplified html **"
# Llama 3's control tokens at the end of a turn and at the beginning of the next one.
STOP = "<|eot_id|>"
_USER = f"{STOP}<|start_header_id|>user<|end_header_id|>\n"
ASSISTANT = f"{STOP}<|start_header_id|>assistant<|end_header_id|>\n"
# Chat template for prompts of `render_raw`.
RAW_TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"
# Description of the action language, written for webgym.
SYSTEM = """You operate a web browser to carry out a task. Each round shows the page that is open as simplified HTML; \
the elements that you can act on have a number as their id. Reply with notes if you need any, each on a line that \
begins with #, and then with exactly one call on a line of its own:
do(action="Click", element="12")
do(action="Right Click", element="12")
do(action="Hover", element="12")
do(action="Type", argument="text", element="12")  # what the field held is replaced
do(action="Search", argument="text", element="12")  # type, then press Enter
do(action="Select Dropdown Option", argument="part of the option's text", element="12")
do(action="Scroll Up")
do(action="Scroll Down")
do(action="Press Enter")
do(action="Go Backward")
do(action="Go Forward")
do(action="Switch Tab", argument="0")
do(action="Wait", argument="5")  # seconds
quote(content="text")  # keep a text of the page for later
exit(message="answer")  # the task is done: give the answer, or an empty text where none is asked for; "N/A" if it \
can't be done
Use only ids of the page that is shown last."""


def render_system_message(spec: PromptSpec) -> tuple[Message, ...]:
    """Return the system message; empty for models that were trained without one."""
    options = WebRLOptions(**spec.options)
    return when(options.explained, (Message(role="system", content=options.system_prompt or SYSTEM),))


def render_raw(spec: PromptSpec, instruction: str, past: Sequence[Step], current: Observation) -> Message:
    """Return the prompt of WebRL's published models: a single text that contains the control tokens of its turns.

    It is served with `RAW_TEMPLATE`, which adds only the BOS token.
    """
    task, history = sanitize_page(instruction), ""
    for index, step in enumerate(past):
        reply = sanitize_text(history_text(step.response, thinking=spec.thinking))
        history += f"Round {index}\n\n{_USER}{PAST_PAGE if index else task}\n\n{ASSISTANT}{reply}\n\n"
    # Only the earlier rounds are counted, as in WebRL's prompts: with the task, pages would end earlier than theirs.
    shown, left = sanitize_page(current.html), _count_page_characters(spec, len(history))
    text = f"Task Instruction: {task}\n\n{history}Round {len(past)}\n\n{_USER}{shown[:left]}\n\n{ASSISTANT}"
    return Message(role="user", content=text)


def is_raw(messages: Sequence[Message]) -> bool:
    """Whether messages are a prompt of `render_raw`; in all other texts control tokens are escaped."""
    return len(messages) == 1 and messages[0].content.endswith(ASSISTANT)


def render_conversation(
    spec: PromptSpec, instruction: str, past: Sequence[Step], current: Observation, *, every_page: bool = False
) -> tuple[Message, ...]:
    """Return the chat messages for the current page, given the finished steps.

    `every_page`: earlier rounds show their pages, too, for training on a whole conversation.
    """
    pages = [step.observation if every_page else None for step in past]
    rounds = [_render_round(instruction, past[:index], page) for index, page in enumerate(pages)]
    replies = [sanitize_text(history_text(step.response, thinking=spec.thinking)) for step in past]
    head, tail = _render_head(instruction, past), _render_tail(current)
    left = _count_page_characters(spec, sum(map(len, (*rounds, *replies, head, tail))))
    shown = sanitize_page(current.html)
    rounds.append(head + shown[:left] + tail)
    messages = [Message(role="user", content=rounds[0])]
    for reply, following in zip(replies, rounds[1:], strict=True):
        messages += [Message(role="assistant", content=reply), Message(role="user", content=following)]
    return tuple(messages)


def _count_page_characters(spec: PromptSpec, taken: int) -> int | None:
    """Return the number of characters left for the page after `taken` by the history; None: unlimited."""
    limit = WebRLOptions(**spec.options).max_characters
    return None if limit is None else max(0, limit - taken)


def _render_round(instruction: str, past: Sequence[Step], page: Observation | None) -> str:
    """Return an earlier round with its page or a placeholder, which in the first round is the task."""
    if page is not None:
        return _render_head(instruction, past) + sanitize_page(page.html) + _render_tail(page)
    return _render_head(instruction, past) + (PAST_PAGE if past else sanitize_page(instruction))


def _render_head(instruction: str, past: Sequence[Step]) -> str:
    """Return the text before a round's page: its number, and the error of the step before it."""
    if not past:
        return f"Task Instruction: {sanitize_page(instruction)}\n\nRound 0\n\n"
    return "\n\n".join([f"Round {len(past)}", *filter(None, [format_failure(past[-1])]), ""])


def _render_tail(observation: Observation) -> str:
    lines = [*format_notices(observation), *format_tabs(observation)]
    return "".join(f"\n{line}" for line in lines)
