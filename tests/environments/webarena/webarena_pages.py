"""Pages that tests of WebArena's scoring look at."""

from dataclasses import dataclass, field
from typing import Any

from webgym_cli.environments.webarena.evaluation_browser import PageScriptError
from webgym_cli.environments.webarena.locators import HelperName
from webgym_cli.records.webarena import Evaluation, Expected, HtmlTarget

SHOP, FORUM = "http://shop.test:7770", "http://forum.test"


@dataclass
class FakePages:
    """Pages from a table; it notes what was done."""

    at: str = f"{SHOP}/"
    contents: dict[str, str] = field(default_factory=dict)
    """HTML by address."""
    values: dict[str, Any] = field(default_factory=dict)
    """What scripts give by their text; one that isn't here fails."""
    answers: dict[tuple[HelperName, str | None], str] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    async def address(self):
        return self.at

    async def open(self, url):
        self.done.append(f"open {url}")
        self.at = url

    async def html(self):
        return self.contents[self.at]

    async def run(self, function):
        self.done.append(f"run {function}")
        if function not in self.values:
            raise PageScriptError
        return self.values[function]

    async def ask(self, helper, argument):
        return self.answers.get((helper, argument))


class FakeJudge:
    """A judge that says the same each time, and notes what it was asked."""

    def __init__(self, says):
        self.says, self.requests = says, []

    async def __call__(self, *question):
        self.requests.append(question)
        return self.says


def strings(note="", **rules):
    return Evaluation(eval_types=["string_match"], reference_answers=Expected(**rules), string_note=note)


def url(reference, note="GOLD in PRED"):
    return Evaluation(eval_types=["url_match"], reference_url=reference, url_note=note)


def target(url="last", locator="", prep_actions=(), **rules):
    return HtmlTarget(url=url, locator=locator, prep_actions=prep_actions, required_contents=Expected(**rules))


def pages(*targets):
    return Evaluation(eval_types=["program_html"], program_html=targets)
