"""An expert for every task of the sites: sees what a policy sees in set_of_marks mode, and solves it on any seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from webgym_cli.environments.fixture_sites.expert_driver import ExpertDriver, parse_instruction
from webgym_cli.environments.fixture_sites.tasks import find_task
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.trajectory import Element
from webgym_cli.records.webrl import AnyAction

_FAILED, _CAPTCHA = "Something went wrong", "Verify you are human"


class SiteExpert:
    """Solves one episode. Also gets over pages that fail or come blank, as the faults make them."""

    def __init__(self, steps: Sequence[Any], values: Mapping[str, Any]) -> None:
        """`steps`: as in `ExpertDriver.follow`. `values`: what the instruction says, by the names in the steps."""
        self._driver = ExpertDriver()
        self._plan = self._driver.follow(steps, dict(values))
        self._waited = False

    def next(self, url: str, elements: Sequence[Element], text: str) -> AnyAction:
        """Return the next action from the page's address, its listed elements and its `document.body.innerText`.

        Raises `LookupError` when the page is not what the task leads to, or when the answer was already given.
        """
        if trouble := self._trouble(url, elements, text):
            return trouble
        self._waited = False
        self._driver.look(url, elements, text)
        try:
            return next(self._plan)
        except StopIteration:
            raise LookupError("the answer was already given") from None

    def _trouble(self, url: str, elements: Sequence[Element], text: str) -> Action | None:
        if not text.strip() and not elements:
            self._waited = not self._waited
            wait = Action(name=ActionName.WAIT, seconds=1)
            return wait if self._waited else Action(name=ActionName.NAVIGATE, url=url)
        if _CAPTCHA in text:
            return Action(name=ActionName.ANSWER, text="The site is blocked: it wants to verify that I am human.")
        if _FAILED in text:
            again = next((element for element in elements if element.name == "Try again"), None)
            return Action(name=ActionName.CLICK, element_id=again.id) if again else None
        return None


def make_site_expert(task_id: str, instruction: str) -> SiteExpert:
    """Return an expert for one episode of a task of the sites.

    Raises `UsageError` for an unknown task, `LookupError` for an instruction that is not the task's.
    """
    task = find_task(task_id)
    return SiteExpert(task.expert, parse_instruction(task.instruction, instruction))
