"""Makes a page heavy: realistic nested elements below its content, and a picture that never comes."""

from __future__ import annotations

from functools import lru_cache

# Elements of a section; one of them is a link.
_GROUP = 20


def add_padding(body: str, nodes: int, endless: str | None) -> str:
    """Return the page with so many more elements and, when its address is given, a picture that hangs."""
    more = padding_html(nodes) if nodes else ""
    if endless is not None:
        more += f'<img src="{endless}" width="1" height="1" alt="">'
    return body.replace("</body>", f"{more}</body>") if more else body


@lru_cache(maxsize=4)
def padding_html(nodes: int) -> str:
    """Return HTML with exactly so many elements: sections with headings, lists, texts and some links."""
    parts: list[str] = []
    count = 0
    while count < nodes:
        room = min(nodes - count, _GROUP)
        parts.append(_section(count, room))
        count += room
    return "".join(parts)


def _section(first: int, count: int) -> str:
    """Return a section of exactly `count` elements, nested some levels deep."""
    if count < 5:
        return "".join(f"<p>Entry {first + at}</p>" for at in range(count))
    inner: list[str] = []
    left = count - 4  # section, h3, div and ul
    while left >= 3:
        number = first + count - left
        tag = f"<b>entry {number}</b>" if inner else f'<a href="/?entry={number}">entry {number}</a>'
        inner.append(f"<li><span>Archive {tag}, kept for the record</span></li>")
        left -= 3
    inner.extend(f"<li>Entry {first + count - at}</li>" for at in range(left))
    return f"<section><h3>Archive {first}</h3><div><ul>{''.join(inner)}</ul></div></section>"
