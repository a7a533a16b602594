"""Paraphrases of templates: a model words each instruction in other ways, in which all values stay verbatim."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from webgym_cli.agent.client.chat import ChatClient, ChatError, ReplyFormat
from webgym_cli.config.generate import GenerateSettings
from webgym_cli.curriculum.journal import AnswerJournal, StoredAnswer
from webgym_cli.curriculum.prompts import LONGEST, TASKS_SCHEMA, NewTasks, build_rephrase_chat
from webgym_cli.jobs.workers import Failures, run_workers
from webgym_cli.records.task import Task
from webgym_cli.tasks.expand import PLACEHOLDER, TaskTemplates
from webgym_cli.util.json_values import digest_json, list_leaves
from webgym_cli.util.optional import when

_PARAPHRASES = ReplyFormat("rephrase", NewTasks, TASKS_SCHEMA)
# Names in quotation marks. An apostrophe within a word is none.
_QUOTED = re.compile(r"\"(.+?)\"|(?<![\w}])'(.+?)'(?!\w)|“(.+?)”|«(.+?)»")
_HINT = "check generate.base_url and generate.model, then run the same command again: what was answered stays"


@dataclass(slots=True)
class Paraphrasing:
    """The paraphrases of the templates of a file."""

    templates: TaskTemplates
    count: int
    """Number of paraphrases that each template is to get."""
    settings: GenerateSettings
    journal: AnswerJournal
    dropped: list[str] = field(default_factory=list)
    """One line for each paraphrase that can't be used."""

    async def execute(self) -> TaskTemplates:
        """Return the templates, each followed by its paraphrases.

        Raises `WebGymError` if the server is down or keeps sending unusable answers; received answers stay stored.
        """
        waiting = [
            one for one in self.templates.templates if _instruction(one) and not self.journal.get(self._key(one))
        ]
        if waiting:
            failures = Failures(min(self.settings.concurrency, len(waiting)), 1)  # every template needs its answer
            chat, left = ChatClient(self.settings), iter(waiting)

            async def worker() -> None:
                for template in left:
                    failures.record(await self._ask(chat, template), _HINT)

            try:
                await run_workers(failures.workers, worker)
            finally:
                await chat.close()
        return self.templates.model_copy(
            update={
                "templates": list(chain.from_iterable((one, *self._build(one)) for one in self.templates.templates))
            }
        )

    async def _ask(self, chat: ChatClient, template: Mapping[str, Any]) -> str:
        """Store the answer for a template; return what is wrong, empty if nothing is."""
        try:
            answer = await chat.ask(self._build_chat(template), _PARAPHRASES, model=self.settings.model)
        except ChatError as error:
            return f"template {template.get('id')}: {error}"
        self.journal.put(StoredAnswer(key=self._key(template), tasks=answer.tasks))
        return ""

    def _build(self, template: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        texts = [_instruction(template)]
        for text in self.journal.list_tasks(self._key(template)):
            text = " ".join(text.split())
            if problem := _find_problem(template, text, texts):
                self.dropped.append(f"template {template.get('id')}: dropped, {problem}: {text[:200]!r}")
            elif len(texts) <= self.count:
                name = {"id": f"{template['id']}-p{len(texts)}"} if template.get("id") else {}
                texts.append(text)
                yield {**template, **name, "instruction": text}

    def _build_chat(self, template: Mapping[str, Any]) -> list[dict[str, Any]]:
        return build_rephrase_chat(_instruction(template), list_fixed_texts(template), self.count)

    def _key(self, template: Mapping[str, Any]) -> str:
        how = self.settings
        parts = how.model, how.temperature, how.top_p, how.extra_body, self._build_chat(template)
        return digest_json(["rephrase", *parts])


def list_fixed_texts(template: Mapping[str, Any]) -> list[str]:
    """Return what a paraphrase must have verbatim.

    These are the placeholders, with what adjoins them (`{user}@desk.test`), the quoted texts, and values of the
    template's own fields, which its check compares.
    """
    text = _instruction(template)
    words = (word.strip("\"'“”«».,:;?!()") for word in text.split())
    adjoined = [word for word in words if PLACEHOLDER.search(word)]
    quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(text)]
    own = [value for name, value in template.items() if name not in Task.model_fields]
    leaves = (str(value) for value in list_leaves(own) if value is not None and not isinstance(value, bool))
    values = [value for value in leaves if value.strip() and _has(text, value)]
    placeholders = [match[0] for match in PLACEHOLDER.finditer(text)]
    return list(dict.fromkeys([*quoted, *adjoined, *values, *placeholders]))


def _find_problem(template: Mapping[str, Any], text: str, others: list[str]) -> str:
    """Return why a paraphrase can't be used; empty if it can."""
    if not text or len(text) > LONGEST:
        return "empty or too long"
    if missing := [part for part in list_fixed_texts(template) if not _has(text, part)]:
        return f"lacks {missing[0]!r}"
    names = {match[0] for match in PLACEHOLDER.finditer(text)}
    if more := names - {match[0] for match in PLACEHOLDER.finditer(_instruction(template))}:
        return f"{min(more)} is not in the template's instruction"
    return when(text.casefold() in {" ".join(other.split()).casefold() for other in others}, "repeated")


def _has(text: str, part: str) -> bool:
    """Whether a text has a part that neither begins nor ends within a word."""
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) is not None


def _instruction(template: Mapping[str, Any]) -> str:
    text = template.get("instruction")
    return text if isinstance(text, str) else ""
