"""Self-contained HTML pages: no network access, no other files.

Untrusted text never becomes markup: templates escape everything, and the content security policy of `layout.html`
allows only the page's images, its one style sheet and its one script.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.util.text import replace_control

if TYPE_CHECKING:
    from jinja2 import Environment


def render_page(folder: Path, template: str, command: str, *, style: str, script: str = "", **values: Any) -> bytes:
    """Return a page of a command in UTF-8.

    `style`, `script`: files beside the template; their digests go into the policy.
    """
    css, code = ((folder / name).read_text(encoding="utf-8") if name else "" for name in (style, script))
    digests = {"style_digest": _digest(css), "script_digest": _digest(code)}
    text = (
        _load_environment(folder)
        .get_template(template)
        .render(command=command, style=css, script=code, **digests, **values)
    )
    # Pages may quote unpaired surrogates, which no encoding has.
    return text.encode(errors="replace")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _load_environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # its import takes 20 ms

    loader = FileSystemLoader([folder, Path(__file__).parent])
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: replace_control(value) if isinstance(value, str) else value,
    )
