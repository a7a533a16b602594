"""Recording of a context's requests as HAR, by which other scorers find what an agent sent."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.util.files import write_atomic

# Files of a page's looks, which no scorer reads and which are most of a recording.
_ASSETS = re.compile(r"^(?!data:)(?![^?#]*\.(css|js|png|jpe?g|gif|svg|woff2?|ttf|ico|webp)([?#]|$))")
_SECRETS = ("authorization", "proxy-authorization", "cookie", "set-cookie")


def record_har(options: SessionOptions, file: Path | None, after: AsyncExitStack) -> SessionOptions:
    """Return the options of a context that is recorded; without a file, as they are. `after`: closed after the context.

    The browser writes the recording as the context closes.
    """
    if file is None:
        return options
    file.parent.mkdir(parents=True, exist_ok=True)
    after.push_async_callback(asyncio.to_thread, finish_har, file)
    given = {
        "record_har_path": _name_partial(file),
        "record_har_content": "embed",
        "record_har_url_filter": _ASSETS,
    }
    return replace(options, context_arguments=options.context_arguments | given)


def finish_har(file: Path) -> None:
    """Store a recording without the logins of its headers; there is none if the browser broke before it was written."""
    if not (unfinished := _name_partial(file)).is_file():
        return
    content = json.loads(unfinished.read_bytes())
    for entry in content["log"]["entries"]:
        for message in (entry["request"], entry["response"]):
            message["headers"] = [one for one in message["headers"] if one["name"].lower() not in _SECRETS]
            message["cookies"] = []
    write_atomic(file, json.dumps(content), mode=0o600)  # forms and answers of the sites are in it
    unfinished.unlink()


def _name_partial(file: Path) -> Path:
    return file.with_name(f".{file.name}")
