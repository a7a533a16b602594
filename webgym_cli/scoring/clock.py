"""Times of day in answers: `14:30`, `2:30 p.m.`, `2 pm`."""

from __future__ import annotations

import re

_TIME = re.compile(r"(\d{1,2})(?::([0-5]\d)(?::([0-5]\d))?|(?<!1[3-9]|2.)(?=\s*[ap]))\s*(?:([ap])\.?\s*m\.?)?", re.I)


def compare_times(given: str, wanted: str) -> bool | None:
    """Whether two times are the same; None unless both are times, or one has minutes.

    One may lack zero seconds, or `a.m.` where its hour may need it.
    """
    one, other = _TIME.fullmatch(given), _TIME.fullmatch(wanted)
    if one is None or other is None:
        return False if any(time and time[2] for time in (one, other)) else None
    halves = {one[4], other[4]}
    if None in halves and len(halves) > 1 and all(1 <= int(match[1]) <= 12 for match in (one, other)):
        return _read_clock(one) % 43200 == _read_clock(other) % 43200
    return _read_clock(one) == _read_clock(other)


def _read_clock(time: re.Match[str]) -> int:
    """Return a time as seconds since midnight."""
    hour, minute, second = (int(part or 0) for part in time.group(1, 2, 3))
    if time[4]:
        hour = hour % 12 + 12 * (time[4].lower() == "p")
    return 3600 * hour + 60 * minute + second
