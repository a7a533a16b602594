"""Python's garbage collector, held back where it only costs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Between two collections of the youngest objects; Python's own number is 700.
_ALLOCATIONS = 200_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect rarely within the block: records hold no cycles, and looking for some doubles the time of reading them.

    What is there already is left out of the search meanwhile. Memory is freed as before: by counting references.
    """
    before = gc.get_threshold()
    # What exists already is not searched again.
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
