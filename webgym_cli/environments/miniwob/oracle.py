"""An expert for some MiniWoB pages: reads the instruction and the listed elements, and names the next action.

It sees what a policy sees in set_of_marks mode (plus typed passwords, colours and two counters of the pages), so its
episodes are demonstrations that a policy can imitate. Every rule reaches the full reward on any seed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from webgym_cli.config.model import Settings
from webgym_cli.environments.browser.observe import ElementSnapshot
from webgym_cli.environments.miniwob.pages import page_of
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.util.optional import when
from webgym_cli.util.registry import suggest_name


@dataclass(frozen=True, slots=True)
class OracleScene:
    """The state that the expert acts on."""

    instruction: str
    sightings: Sequence[ElementSnapshot]
    pressed: int = 0
    """Number of buttons already pressed, on the page that counts them."""

    def all(self, *roles: str) -> list[ElementSnapshot]:
        """Return the elements of these roles, in document order."""
        return [seen for seen in self.sightings if seen.element.role in roles]

    def find(self, name: str, *roles: str) -> ElementSnapshot:
        """Return the first element of this name; case counts unless nothing matches otherwise."""
        among = self.all(*roles) if roles else list(self.sightings)
        for fold in (str, str.casefold):
            for seen in among:
                if fold(seen.element.name) == fold(name):
                    return seen
        raise LookupError(f"no element is called {name!r}")

    def read_instruction(self, pattern: str) -> str:
        """Return the instruction's match of the pattern's first group."""
        match = re.search(pattern, self.instruction)
        if match is None:
            raise LookupError(f"the instruction is not understood: {self.instruction!r}")
        return match.group(1)


def _act(target: ElementSnapshot | None, text: str | None = None) -> Action:
    """Return the action on an element: a click, or typing a text; without an element a scroll down."""
    if target is None:
        return Action(name=ActionName.SCROLL, direction="down")
    name = ActionName.CLICK if text is None else ActionName.TYPE
    return Action(name=name, element_id=target.element.id, text=text)


Rule = Callable[[OracleScene], Action]
_FIELDS = ("textbox", "password", "textarea", "date", "time", "spinbutton", "searchbox")
_PASSWORD = r'password "(.+?)"'
_ORDINALS = {"1st": 0, "2nd": 1, "3rd": 2}
_WIDGET_ROLES = {"text": "textbox", "textarea": "textbox"}


def list_expert_tasks() -> tuple[str, ...]:
    """Return the pages that the expert solves, sorted."""
    return tuple(sorted(_RULES))


def require_expert(page: str) -> Rule:
    """Return the page's rule, or raise `UsageError` that names the pages which have one."""
    rule = _RULES.get(page)
    if rule is None:
        raise UsageError(
            f"there is no expert for {page!r}, only for {len(_RULES)} pages",
            hint=f"{suggest_name(page, list_expert_tasks())} (or another policy: --policy vllm)",
        )
    return rule


def require_experts(settings: Settings, tasks: Sequence[Task]) -> None:
    """Raise `UsageError` for a task on a page that the expert does not solve."""
    for task in tasks:
        require_expert(page_of(task))


def next_action(page: str, scene: OracleScene) -> Action:
    """Return the expert's next action on an element."""
    rule = require_expert(page)
    try:
        return rule(scene)
    except LookupError as error:
        raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"the expert for {page} is lost: {error}") from error


def _click_named(pattern: str, *roles: str) -> Rule:
    return lambda scene: _act(scene.find(scene.read_instruction(pattern), *roles))


def _click_fixed(name: str, *roles: str) -> Rule:
    return lambda scene: _act(scene.find(name, *roles))


def _submit(scene: OracleScene) -> Action:
    """Press the button at the end, scrolling to it where the page is long."""
    buttons = [seen for seen in scene.all("button") if seen.element.name in ("Submit", "Login")]
    return _act(next(reversed(buttons), None))


def _fill(scene: OracleScene, texts: Sequence[str]) -> Action:
    """Type each text into the field of the same position, then submit."""
    for seen, text in zip(scene.all(*_FIELDS), texts, strict=False):
        if seen.detail.get("typed") != text:
            return _act(seen, text)
    return _submit(scene)


def _dialog_button(scene: OracleScene) -> Action:
    label = scene.read_instruction(r'labeled "(.+)"')
    return _act(scene.find("Close" if label == "x" else label, "button"))


def _select_named(role: str) -> Rule:
    """Check each named box that isn't checked yet, then submit."""

    def rule(scene: OracleScene) -> Action:
        wanted = scene.read_instruction(r"Select (.+) and click Submit").split(", ")
        for seen in scene.all(role):
            if seen.element.name in wanted and not seen.element.value:
                return _act(seen)
        return _submit(scene)

    return rule


def _choose(scene: OracleScene) -> Action:
    wanted = scene.read_instruction(r"Select (.+) from the (?:scroll )?list")
    chooser = scene.all("combobox", "listbox")[0]
    if set(chooser.element.value.split(", ")) != set(wanted.split(", ")):
        return _act(chooser, wanted)
    return _submit(scene)


def _enter(*patterns: str) -> Rule:
    """Type the match of each pattern into the field of the same position, then submit."""
    return lambda scene: _fill(scene, [scene.read_instruction(pattern) for pattern in patterns])


def _enter_cased(scene: OracleScene) -> Action:
    text = scene.read_instruction(r'Type "(.+?)"')
    return _fill(scene, [text.upper() if "upper case" in scene.instruction else text.lower()])


def _enter_date(scene: OracleScene) -> Action:
    month, day, year = scene.read_instruction(r"Enter ([\d/]+) as the date").split("/")
    return _fill(scene, [f"{year}-{month:0>2}-{day:0>2}"])


def _enter_time(scene: OracleScene) -> Action:
    hours, minutes, half = re.split(r"[:\s]+", scene.read_instruction(r"Enter (\S+\s*[AP]M) as the time"))
    return _fill(scene, [f"{int(hours) % 12 + when(half == 'PM', 12):02}:{minutes}"])


def _focus_nth(scene: OracleScene) -> Action:
    return _act(scene.all("textbox")[_ORDINALS[scene.read_instruction(r"the (\w+) input")]])


def _click_widget(scene: OracleScene) -> Action:
    kind = scene.read_instruction(r'Click on a "(\w+)" widget')
    tag = "textarea" if kind == "textarea" else "input"
    candidates = scene.all(_WIDGET_ROLES.get(kind, kind))
    return _act(next(seen for seen in candidates if kind not in _WIDGET_ROLES or seen.detail["tag"] == tag))


def _click_colour(scene: OracleScene) -> Action:
    colour = scene.read_instruction(r"Click on the (\w+) colored box")
    return _act(next(seen for seen in scene.sightings if seen.detail.get("color") == colour))


def _pick_shades(scene: OracleScene) -> Action:
    colour = scene.read_instruction(r"shades of (\w+)")
    for seen in scene.sightings:
        if seen.detail.get("color") == colour and seen.detail.get("class") != "selected":
            return _act(seen)
    return _submit(scene)


def _expand(scene: OracleScene) -> Action:
    """Open the section unless it is open; the button may then lie below the screen."""
    section = next((seen for seen in scene.all("tab") if seen.element.name.startswith("Section")), None)
    return _act(section) if section and section.element.value != "expanded" else _submit(scene)


_RULES: dict[str, Rule] = {
    "choose-list": _choose,
    "click-button": _click_named(r'"(.+)" button', "button"),
    "click-button-sequence": lambda scene: _act(scene.find("ONE" if scene.pressed == 0 else "TWO")),
    "click-checkboxes": _select_named("checkbox"),
    "click-checkboxes-large": _select_named("checkbox"),
    "click-checkboxes-transfer": _select_named("checkbox"),
    "click-collapsible": _expand,
    "click-collapsible-nodelay": _expand,
    "click-color": _click_colour,
    "click-dialog": _click_fixed("Close", "button"),
    "click-dialog-2": _dialog_button,
    "click-link": _click_named(r'link "(.+)"'),
    "click-option": _select_named("radio"),
    "click-scroll-list": _choose,
    "click-shades": _pick_shades,
    "click-tab": _click_named(r"Click on (Tab #\d)"),
    "click-test": _click_fixed("Click Me!"),
    "click-test-2": _click_fixed("ONE"),
    "click-test-transfer": _click_fixed("ONE"),
    "click-widget": _click_widget,
    "enter-date": _enter_date,
    "enter-password": _enter(_PASSWORD, _PASSWORD),
    "enter-text": _enter(r'"(.+?)"'),
    "enter-text-2": _enter_cased,
    "enter-text-dynamic": _enter(r'"(.+?)"'),
    "enter-time": _enter_time,
    "focus-text": lambda scene: _act(scene.all("textbox")[0]),
    "focus-text-2": _focus_nth,
    "login-user": _enter(r'username "(.+?)"', _PASSWORD),
    "unicode-test": _click_named(r'"(.+)" button', "button"),
}
