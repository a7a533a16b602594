"""A disk that is full, as far as files of this process go."""

import resource
import signal
from contextlib import contextmanager


@contextmanager
def disk_full_at(size: int):
    """Let no file grow over a size: the kernel then writes a part and refuses the rest, as a full disk does."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
