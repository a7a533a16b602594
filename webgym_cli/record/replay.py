"""Replay of recorded actions on a fresh page: finds their targets, and writes them as the policy would."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from webgym_cli.agent.actions.action_sets import ACTION_SETS
from webgym_cli.agent.forms.reasoning import add_empty_thought
from webgym_cli.agent.prompt import PolicyReply, Prompt
from webgym_cli.config.model import Settings
from webgym_cli.environments.base import Environment
from webgym_cli.environments.browser.actions import normalise_point
from webgym_cli.environments.browser.observe import list_elements
from webgym_cli.environments.web.environment import WebEnvironment
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.recording import RecordedAction, RecordedTarget
from webgym_cli.records.series import EXPERT
from webgym_cli.records.trajectory import Element, Generation

if TYPE_CHECKING:
    from webgym_cli.environments.browser.session import BrowserSession

Point = tuple[float, float]
# An element, None for a point without one, and the point in CSS pixels.
Place = tuple[Element | None, Point]
# Looks for a target that is not in sight: waits, pages down, and pages up.
_WAITS, _DOWN, _UP = 3, 4, 8
_WITHIN = "a drag within an element needs context_config.more_actions=true, or use keys, such as Shift+ArrowLeft"
_NO_POSITIONS: dict[str, object] = {"position": None, "to_position": None, "path": None}
# From this size on, in CSS pixels of both sides, it matters where an element is clicked: canvases, maps.
_LARGE = 200
_DIALOGS = (ActionName.ACCEPT_DIALOG, ActionName.DISMISS_DIALOG)
_LABELS_OF = """(list, text) => text.split("\\n").map((value) =>
  Array.from(list.options).find((option) => option.value === value)?.label ?? value).join("\\n")"""


class ActionWriter:
    """Writes actions as the policy has them: in its interaction mode and action set."""

    def __init__(self, settings: Settings) -> None:
        """Raises `UsageError` for an action set that shows pages as text."""
        context = settings.context_config
        self._mode, self._version = context.interaction_mode, str(context.prompt_version)
        self._thinking = settings.policy_config.thinking
        actions = ACTION_SETS.find(self._version)
        if actions.observes == "text":
            hint = "-s context_config.prompt_version=complete"
            raise UsageError(f"the prompt version {self._version} shows no pictures to act on", hint=hint)
        dialogs = settings.browser.dialogs == "policy"
        self._actions = actions.choose_variant(dialogs=dialogs, more=context.more_actions)

    def write(
        self, action: Action, places: Sequence[Place | None], size: tuple[int, int], way: Sequence[Point] = ()
    ) -> Action:
        """Return the action at the places of its target and of the end of a drag. Raises `LookupError`.

        `way`: points that a drag passes in CSS pixels. With marks they are kept within one element, such as a drawing.
        """
        changes: dict[str, object] = {}
        for place, prefix in zip(places, ("", "to_"), strict=False):
            if place is not None:
                changes |= {"here": None, **self._write_place(place, prefix, size)}
        known = [one[0] for one in places if one and one[0]]
        is_within = len(known) == 2 and known[0].id == known[1].id
        if not is_within and not any(min(element.box[2:]) >= _LARGE for element in known):
            changes |= _NO_POSITIONS
        is_kept = is_within or not self.needs_element
        changes["path"] = tuple(self._write_point(point, known, size) for point in way if is_kept) or None
        return self._express(action.model_copy(update=changes), needs_positions=is_within and self.needs_element)

    def _write_place(self, place: Place, prefix: str, size: tuple[int, int]) -> dict[str, object]:
        element, point = place
        if not self.needs_element:
            return {f"{prefix}element_id": None, f"{prefix}coordinate": normalise_point(point, size)}
        if element is None:
            raise LookupError("nothing is marked there: a policy could not act on it either")
        position = self._write_point(point, [element], size)
        return {f"{prefix}element_id": element.id, f"{prefix}coordinate": None, f"{prefix}position": position}

    def _write_point(self, point: Point, known: Sequence[Element], size: tuple[float, float]) -> Point:
        """Return a point in thousandths, of the first element's box where the policy has marks."""
        if not self.needs_element:
            return normalise_point(point, size)
        left, top, width, height = known[0].box
        return normalise_point((point[0] - left, point[1] - top), (width, height))

    def format(self, action: Action) -> str:
        """Return an action as a response of the policy."""
        return add_empty_thought(self._actions.format_action(action, self._mode), thinking=self._thinking)

    @property
    def needs_element(self) -> bool:
        """Whether the policy acts on marked elements alone."""
        return self._mode is InteractionMode.SET_OF_MARKS

    def _express(self, action: Action, *, needs_positions: bool) -> Action:
        """Return the action, or one to the same effect that the action set has."""
        others: list[dict[str, object]] = [{"path": None}] if needs_positions else [_NO_POSITIONS]
        if action.name is ActionName.SELECT_OPTION:  # typing into a native list chooses the option
            others += [_NO_POSITIONS | {"name": ActionName.TYPE}]
        elif action.name is ActionName.SCROLL:
            others += [_NO_POSITIONS | {"coordinate": None}, _NO_POSITIONS | {"coordinate": None, "amount": None}]
        for changes in ({}, *others):
            choice = action.model_copy(update=changes)
            try:
                self.format(choice)
            except ValueError:
                continue
            return choice
        if needs_positions:
            raise LookupError(_WITHIN)
        hint = "context_config.prompt_version=full has all"
        raise LookupError(f"the action set {self._version} has no such {action.name} ({hint})")


def find_element(point: tuple[float, float], elements: Iterable[Element]) -> Element | None:
    """Return the smallest element around a point."""

    def is_around(box: tuple[float, float, float, float]) -> bool:
        return all(0 <= at - start <= size for at, start, size in zip(point, box[:2], box[2:], strict=True))

    return min((one for one in elements if is_around(one.box)), key=lambda one: math.prod(one.box[2:]), default=None)


async def list_seen(session: BrowserSession) -> list[Element]:
    """Return the elements in sight; none while a dialog hides the page."""
    return [] if session.dialogs.open else [one.element for one in await list_elements(session)]


class Replay:
    """An agent that replays a recording as an expert; its episodes are demonstrations."""

    name = EXPERT

    def __init__(self, actions: Iterable[RecordedAction], settings: Settings) -> None:
        self._actions, self._writer, self._looks = deque(actions), ActionWriter(settings), 0

    async def act(self, prompt: Prompt, environment: Environment) -> PolicyReply:
        """Return the next recorded action in the policy's format. Raises `BoundaryError` if its target is not there."""
        try:
            action = await self.next(require_web(environment).session)
        except LookupError as error:
            raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"the replay: {error.args[0]}") from error
        text = self._writer.format(action or Action(name=ActionName.ANSWER, text="Done."))
        return PolicyReply(text=text, generation=Generation(finish_reason="stop"))

    def sampling(self, *, greedy: bool) -> None:
        """Return nothing: a recording is no sample."""

    async def next(self, session: BrowserSession) -> Action | None:
        """Return the next action, or one that looks for its target; None at the end. Raises `LookupError`."""
        if not self._actions:
            return None
        recorded, size = self._actions[0], (session.options.width, session.options.height)
        if recorded.action.name in _DIALOGS and not session.dialogs.open and self._looks < _WAITS:
            self._looks += 1
            return Action(name=ActionName.WAIT, seconds=1)
        seen, places = await list_seen(session), list[Place | None]()
        for target in (recorded.target, recorded.to_target):
            place = await self._find(session, target, seen) if target else None
            if target and (place is None or not 0 <= place[1][1] < size[1]):
                return self._look_around(session.url, target, place)
            places.append(place)
        action = recorded.action
        if action.name is ActionName.SELECT_OPTION and recorded.target and recorded.target.selector:
            async with session.guard("reading a list"):
                label = await session.page.locator(recorded.target.selector).first.evaluate(_LABELS_OF, action.text)
            action = action.model_copy(update={"text": label})
        self._actions.popleft()
        self._looks = 0
        x, y = places[0][1] if places and places[0] else (0.0, 0.0)
        return self._writer.write(action, places, size, [(x + across, y + down) for across, down in recorded.path])

    async def _find(self, session: BrowserSession, target: RecordedTarget, seen: Sequence[Element]) -> Place | None:
        element = box = None
        if target.selector:
            async with session.guard("looking for an element"):
                locator = session.page.locator(target.selector)
                if await locator.count() and (bounds := await locator.first.bounding_box()):
                    box = bounds["x"], bounds["y"], bounds["width"], bounds["height"]
        else:
            alike = (one for one in seen if (one.role, one.name) == (target.role, target.name))
            element = min(alike, key=lambda one: math.dist(one.box[:2], target.box[:2]), default=None)
            box = element.box if element else None
        if box is None:
            return None
        x, y = target.offset or (box[2] / 2, box[3] / 2)
        point = box[0] + min(x, box[2] - 1), box[1] + min(y, box[3] - 1)
        element = element or find_element(point, seen)
        in_sight = 0 <= point[1] < session.options.height
        return None if self._writer.needs_element and element is None and in_sight else (element, point)

    def _look_around(self, url: str, target: RecordedTarget, place: Place | None) -> Action:
        """Return an action that may bring a target in sight: a wait, or a page towards it."""
        self._looks += 1
        if self._looks > _WAITS + _DOWN + _UP:
            raise LookupError(f"{url} shows no {target.selector or f'{target.role} {target.name!r}'}")
        if place is None and self._looks <= _WAITS:
            return Action(name=ActionName.WAIT, seconds=1)
        down = self._looks <= _WAITS + _DOWN if place is None else place[1][1] > 0
        return Action(name=ActionName.SCROLL, direction="down" if down else "up")


def require_web(environment: Environment) -> WebEnvironment:
    """Return an environment on which a person can act. Raises `UsageError` for others."""
    if isinstance(environment, WebEnvironment):
        return environment
    raise UsageError("a person can only do tasks on web pages", hint="--task of the environment web, sites or webarena")
