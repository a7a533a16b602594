"""A table of cases as one test: thousands of tests of a line each take longer to collect than to run."""

import functools
import inspect
from collections.abc import Callable, Iterable

import pytest


def each(names: str | tuple[str, ...], table: Iterable[object]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Return a decorator: the test runs on every row, and all rows that fail are raised together, each with its values.

    `names`: those of the arguments, as for `parametrize`. The test takes no fixture: nothing is set up between rows.
    """
    rows = list(table)

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        # Either would pass without having run.
        assert rows and not inspect.iscoroutinefunction(check), "a table has rows, and its test is no coroutine"

        def test() -> None:
            errors: list[BaseException] = []
            for row in rows:
                values = {names: row} if isinstance(names, str) else dict(zip(names, row, strict=True))
                try:
                    check(**values)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - raised below, with the others
                    error.add_note(f"of the row {values!r:.1000}")
                    errors.append(error)
            if errors:
                raise BaseExceptionGroup(f"{len(errors)} of {len(rows)} rows", errors)

        functools.update_wrapper(test, check)
        del test.__wrapped__  # type: ignore[attr-defined]  # pytest would ask it for fixtures
        return test

    return decorate
