"""Files of recorded actions: webgym's, and what Playwright's codegen writes with `--target jsonl`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webgym_cli.environments.browser.mouse import MODIFIERS
from webgym_cli.errors import UsageError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.recording import RecordedAction, RecordedTarget
from webgym_cli.util.files import read_jsonl

# Codegen's names of actions that have one of ours.
_NAMES = {
    **dict.fromkeys(("click", "check", "uncheck"), ActionName.CLICK),
    "hover": ActionName.HOVER,
    "fill": ActionName.TYPE,
    "press": ActionName.KEY,
    "select": ActionName.SELECT_OPTION,
    "setInputFiles": ActionName.UPLOAD_FILE,
    "navigate": ActionName.NAVIGATE,
    "closePage": ActionName.CLOSE_TAB,
}
_INTO_FRAME = " >> internal:control=enter-frame >> "
_HINT = "playwright codegen --target jsonl -o FILE URL, or a file of RUN/recordings"


def read_recording(path: Path) -> list[RecordedAction]:
    """Return the actions of a file. Raises `UsageError` with the line of the first one that is no action."""
    recording = _Recording()
    try:
        for number, line in enumerate(read_jsonl(path), 1):
            try:
                recording.append(line)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                reason = describe_invalid(error)
                raise UsageError(f"{path}:{number}: this is no recorded action: {reason}", hint=_HINT) from None
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}", hint=_HINT) from None
    if not recording.actions:
        raise UsageError(f"{path}: there is no action in the file", hint=_HINT)
    return recording.actions


class _Recording:
    """Actions of a file, and the tabs that its replay has by then: codegen names the page of each action."""

    def __init__(self) -> None:
        self.actions: list[RecordedAction] = []
        self._tabs: list[str] = []
        """Open pages in the order of opening, which is the time of a popup's signal, or of a page's first action."""
        self._before: dict[str, str] = {}
        """The page that was shown when a page opened; it is shown again when that closes."""
        self._shown = self._last_page = ""

    def append(self, line: Mapping[str, Any]) -> None:
        """Add the action of a line, if it has one."""
        if "action" in line:
            self.actions.append(RecordedAction.model_validate(line))
            return
        name, page = line.get("name", ""), line.get("pageGuid", "")
        if page and page not in self._tabs:
            if name == "openPage" and self._tabs:  # the user opened a tab
                self.actions.append(RecordedAction(action=Action(name=ActionName.NEW_TAB)))
            self._open(page)
        if "browserName" not in line and not name.startswith("assert") and name != "openPage":
            self._append_action(name, page, line)
        for signal in line.get("signals") or ():
            if popup := signal.get("popupPageGuid"):
                self._open(popup)
        if name == "closePage" and len(self._tabs) > 1:
            self._close(page)

    def _open(self, page: str) -> None:
        self._before[page], self._shown = self._shown, page
        self._tabs.append(page)

    def _close(self, page: str) -> None:
        self._tabs.remove(page)
        before = self._before.pop(page)
        if self._shown == page:
            self._shown = before if before in self._tabs else self._tabs[-1]

    def _append_action(self, name: str, page: str, line: Mapping[str, Any]) -> None:
        if name not in _NAMES:
            raise ValueError(f"an action {name!r} is not known")
        if (name == "navigate" and not self.actions) or (name == "closePage" and len(self._tabs) == 1):
            return  # the task has its start page, and the last page is never closed
        if line.get("key") == "Tab" or line.get("clickCount") == 0:
            return  # the next action names its element; and an Enter that submits a form clicks its button, too
        if page and page != self._shown:
            tab = Action(name=ActionName.SWITCH_TAB, tab=self._tabs.index(page))
            self.actions.append(RecordedAction(action=tab))
            self._shown = page
        self._merge(name, _convert(_NAMES[name], line), page)

    def _merge(self, name: str, recorded: RecordedAction, page: str) -> None:
        """Append an action, or make one of it and the last on the same element."""
        last = next(reversed(self.actions), None)
        if last and last.target == recorded.target and self._last_page == page:
            if (last.action.name, name) == (ActionName.CLICK, "fill"):
                self.actions.pop()
            elif recorded.action.keys == ("Enter",) and last.action.text:
                action = last.action.model_copy(update={"text": f"{last.action.text}\n"})
                recorded = last.model_copy(update={"action": action})
                self.actions.pop()
        self.actions.append(recorded)
        self._last_page = page


def _convert(name: ActionName, line: Mapping[str, Any]) -> RecordedAction:
    held = [key for key, bit in MODIFIERS.items() if int(line.get("modifiers") or 0) & bit]
    fields: dict[str, Any] = {"name": name, "text": line.get("text"), "url": line.get("url")}
    if line.get("selector"):
        fields["here"] = True  # replaced by the place of the target
    if name is ActionName.CLICK:
        count, button = line.get("clickCount", 1), line.get("button", "left")
        fields |= {"clicks": count if count > 1 else None, "button": button if button != "left" else None}
        fields |= {"modifiers": held or None}
    elif name is ActionName.KEY:
        fields["keys"] = [*held, line["key"]]
    elif name is ActionName.SELECT_OPTION:
        fields["text"] = "\n".join(line["options"])
    elif name is ActionName.UPLOAD_FILE:
        fields["text"] = "\n".join(Path(file).name for file in line["files"])
    position = line.get("position")
    offset = (position["x"], position["y"]) if position else None
    frames = (*(line.get("framePath") or ()), line.get("selector", ""))
    target = RecordedTarget(selector=_INTO_FRAME.join(frames), offset=offset) if frames[-1] else None
    return RecordedAction(action=Action.model_validate(fields), target=target)
