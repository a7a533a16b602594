"""Actions on an open dialog: by their names, or by keys and typing as at a keyboard."""

from __future__ import annotations

from webgym_cli.environments.browser.keys import find_key
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.webrl import AnyAction

_ANSWERS = {"Enter": ActionName.ACCEPT_DIALOG, "Escape": ActionName.DISMISS_DIALOG}
_BLOCKED = "a dialog is open: nothing else can be done until it is accepted or dismissed"


async def answer_dialog(session: BrowserSession, action: AnyAction) -> str | None:
    """Answer the open dialog as an action says. Returns None, or why it stays open."""
    dialog = session.dialogs.open
    if dialog is None or not isinstance(action, Action):
        return _BLOCKED
    key = find_key(action.keys[0]) if action.keys and len(action.keys) == 1 else None
    name, text = _ANSWERS.get(key or "", action.name), action.text
    if text is not None and dialog.type != "prompt":
        return f"the dialog ({dialog.type}) has no field for a text"
    if name is ActionName.TYPE and action.here:
        # the first typing replaces the default, which is selected, as a browser has it
        session.dialogs.typed = (session.dialogs.typed or "") + (text or "").removesuffix("\n")
        if not action.submit and not (text or "").endswith("\n"):
            return None
        name, text = ActionName.ACCEPT_DIALOG, None
    if name not in _ANSWERS.values():
        return _BLOCKED
    async with session.guard("answering a dialog"):
        await (session.dialogs.accept(text) if name is ActionName.ACCEPT_DIALOG else session.dialogs.dismiss())
    return None


async def refuse_answer(session: BrowserSession, action: Action, point: object) -> str:
    """Say that there is nothing to answer."""
    return "no dialog is open"
