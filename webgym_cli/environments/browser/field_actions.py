"""Actions on form fields: typing, keys, choosing options, uploading files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from webgym_cli.environments.browser import mouse
from webgym_cli.environments.browser.frames import NOWHERE, ActScript
from webgym_cli.environments.browser.keys import combine_keys
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.records.action import Action

# Milliseconds between the digits for a masked field.
_MASK_MS = 40
# Longer texts are inserted at once instead of being typed key by key.
_MAX_TYPED_KEYS = 60
# Fraction of the action timeout to wait for a file chooser after a click.
_CHOOSER_SHARE = 0.5
# Maximum number of files named in an error text.
_NAMED_FILES = 20
# Keys that copy and paste, in lower case.
_COPY_KEYS = ("control+c", "control+x", "control+insert", "shift+delete")
_PASTE_KEYS = ("control+v", "control+shift+v", "shift+insert")


async def type_text(session: BrowserSession, action: Action, point: mouse.Point | None) -> str | None:
    """Click a point and replace the field's text; without a point type into the focused field.

    A line feed at the end presses Enter; a single line feed does only that. In a native list the option with that label
    is chosen, because the list's popup is outside of the page.
    """
    text = action.text or ""
    enter = text.endswith("\n") or bool(action.submit)
    only_enter = text == "\n"
    text = text.removesuffix("\n").removesuffix("\r")
    if point is not None:
        await mouse.click(session, point)
    script = ActScript(session)
    ready: dict[str, Any] = {}
    if not only_enter:
        ready = await script.call_at("prepare", point or NOWHERE, text, bool(action.append))
    while "key" in ready:  # a slider
        async with session.guard("typing"):
            await session.page.keyboard.press(ready["key"])
        ready = await script.call("towards", text)
    if "error" in ready:
        return str(ready["error"])
    is_typed = not only_enter and "done" not in ready
    if is_typed:
        await _type_keys(session, script, action, ready, text, at_end=point is not None)
        if ready.get("editor") and text:  # typed text would be indented and its brackets closed a second time
            await _paste(session, script, {"text/plain": text})
    error = (await script.call("typed", text, enter)).get("error") if is_typed else None
    if error and "digits" in ready:
        await script.call("unmask")
        async with session.guard("typing", may_close=True):
            await session.page.keyboard.type(text)
        error = (await script.call("typed", text)).get("error")
    if enter:
        async with session.guard("typing", may_close=True):
            await session.page.keyboard.press("Enter")
    return error


async def _type_keys(
    session: BrowserSession, script: ActScript, action: Action, ready: dict[str, Any], text: str, *, at_end: bool
) -> None:
    """Type into the focused field after `act.js` has prepared it."""
    async with session.guard("typing", may_close=True):
        keyboard = session.page.keyboard
        for number, part in enumerate(ready.get("parts") or ()):
            await script.call("section", number)
            await keyboard.type(part)
        if digits := ready.get("digits"):
            for _ in re.findall(r"\w+", ready["mask"]):  # to its first part, wherever the click was
                await keyboard.press("ArrowLeft", delay=_MASK_MS)
            await keyboard.type(digits, delay=_MASK_MS)  # each digit is drawn before it takes the next one
        if "parts" in ready or "digits" in ready:
            return
        if action.append and at_end:
            await keyboard.press("Control+End")
        if ready.get("editor") and not action.append:
            await keyboard.press("Control+A")
        if not text and not ready.get("empty", True):
            await keyboard.press("Delete")
        elif ready.get("editor"):
            return
        elif len(text) > _MAX_TYPED_KEYS or ("\n" in text and not action.append):
            await keyboard.insert_text(text)
        else:
            # The page may need a frame to pass the focus on.
            await keyboard.type(text, delay=_MASK_MS if ready.get("slow") else 0)


async def press_keys(session: BrowserSession, action: Action, point: mouse.Point | None) -> str | None:
    """Press keys together: on the element at a point, which is focused first, or on the focused element."""
    try:
        keys = combine_keys(action.keys or ())
    except ValueError as error:
        return str(error)
    script, pages = ActScript(session), session.pages
    if point is not None:
        await script.call_at("focusAt", point)
    if keys.lower() in _PASTE_KEYS:
        return await _paste(session, script, pages.clipboard) if pages.clipboard else "nothing was copied so far"
    is_copy = keys.lower() in _COPY_KEYS
    if is_copy:
        await script.call_at("hearCopy", NOWHERE)
    async with session.guard("pressing keys", may_close=True):
        await session.page.keyboard.press(keys)
    if is_copy:
        pages.clipboard = (await script.call("copied"))["copied"] or pages.clipboard
    return None


async def _paste(session: BrowserSession, script: ActScript, data: dict[str, str]) -> str | None:
    """Paste data by type at the focus. Returns None, or the reason why nothing takes it."""
    taken = await script.call_at("paste", NOWHERE, data)
    if not taken:
        async with session.guard("pasting", may_close=True):
            await session.page.keyboard.insert_text(data.get("text/plain", ""))
    error: str | None = taken.get("error")
    return error


async def select_option(session: BrowserSession, action: Action, point: mouse.Point | None) -> str | None:
    """Choose an option of the list at a point: the one with this label, or the first whose label contains the text."""
    chosen = await ActScript(session).call_at("select", point or session.pointer, action.text)
    error: str | None = chosen.get("error")
    return error


async def upload_files(session: BrowserSession, action: Action, point: mouse.Point | None) -> str | None:
    """Click a point and pass files of the task's folder (one name a line) to the file chooser it opens.

    Where none opens, the files are dropped there.
    """
    folder = session.options.upload_folder
    if folder is None:
        return "the task has no files"
    files = [_find_file(folder, name.strip()) for name in (action.text or "").splitlines()]
    if not files or None in files:
        known = sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
        return f"there is no such file; there are: {', '.join(known[:_NAMED_FILES])}"
    from playwright.async_api import TimeoutError as NoChooser

    limit = session.options.action_timeout * _CHOOSER_SHARE * 1000
    async with session.guard("giving files"):
        try:
            async with session.page.expect_file_chooser(timeout=limit) as event:
                # Through the driver: a click over our own connection would precede its file-chooser interception.
                await session.page.mouse.click(*(point or session.pointer))
            chooser = await event.value
            session.pages.file_requests = 0
        except NoChooser:
            return await _drop_files(session, [str(path) for path in files], point or session.pointer)
        if await chooser.element.evaluate("(input) => input.webkitdirectory"):
            folder = Path(os.path.commonpath([path.parent for path in files if path]))
            if {path for path in folder.rglob("*") if path.is_file()} != set(files):
                return "a folder is given there: name all files of one"
            files = [folder]
        elif len(files) > 1 and not chooser.is_multiple():
            return "only one file can be given there"
        await chooser.set_files([path for path in files if path])
    return None


async def _drop_files(session: BrowserSession, paths: list[str], point: mouse.Point) -> str | None:
    page, place = ActScript(session), ActScript(session)
    channel = (await session.connection()).channel
    data = {"items": [], "files": paths, "dragOperationsMask": 1}

    async def drag(kind: str) -> None:
        await channel.send("Input.dispatchDragEvent", {"type": kind, "x": point[0], "y": point[1], "data": data})

    await page.call("watch", point, True)
    await place.call_at("hearDrop", point)
    await drag("dragEnter")
    await drag("dragOver")
    taken = (await place.call("takesDrop"))["taken"]
    await drag("drop" if taken else "dragCancel")
    has_effect = taken and (await page.call("hasChanged"))["changed"]
    return None if has_effect else "nothing there asks for or takes a file"


def _find_file(folder: Path, name: str) -> Path | None:
    """Return a file in a folder; None if it does not exist or is outside of the folder."""
    try:
        root, path = folder.resolve(), (folder / name).resolve()
        return path if path.is_relative_to(root) and path.is_file() else None
    except (OSError, ValueError):  # a name that no file can have: too long, or with NUL
        return None
