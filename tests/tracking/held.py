"""Stands for a command at work that is tracked: hands over what is new, says so, and then has more to do for ever.

python -m tests.tracking.held RUN
"""

import asyncio
import sys
from pathlib import Path

from webgym_cli.jobs.signals import run_async
from webgym_cli.loop.context import StageContext
from webgym_cli.store.find_run import open_run
from webgym_cli.store.run import new_attempt


async def work(path: Path) -> None:
    """Hold the context open."""
    run, settings = open_run(path)
    async with StageContext(run, settings, new_attempt(run), lambda event: None):
        sys.stdout.write("held\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    run_async(work(Path(sys.argv[1])))
