"""The executable: runs the app and turns errors into a message, a hint and an exit code."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from webgym_cli.cli.output import Output, fail
from webgym_cli.cli.streams import discard, explain_os_error, open_streams
from webgym_cli.errors import JobError, StoreError, Terminated, UsageError, UserNote, WebGymError
from webgym_cli.util import stopping
from webgym_cli.util.optional import when
from webgym_cli.util.proxies import check_key_log, exempt_loopback
from webgym_cli.util.secrets import add_address_keys, add_environment

AGAIN = "the same command goes on where this stopped (webgym resume RUN does so for a run)"
# The commands whose work is resumed after an interruption; the others serve or only read.
RESUMABLE = (
    *("rollout", "judge", "score", "eval", "prepare", "train", "loop", "curriculum"),
    *("resume", "import", "gc", "generate"),
)
# Messages of DuckDB, Arrow, the loader and the interpreter where memory or threads are limited.
_NO_MEMORY = re.compile(
    r"OutOfMemory|bad.alloc|can't start new thread|cannot allocate memory|failed to (allocate|map segment)",
    re.IGNORECASE,
)
# Environment variable with which an exception that a plug-in caused is shown with its traceback.
TRACEBACK = "WEBGYM_TRACEBACK"
_REASON = 500
ROOM = "make room (df -h) or give access (ls -l), then the same command goes on where this stopped"


def main() -> None:
    """Run webgym with the process's arguments and exit with a published code."""
    _require_docstrings()
    _require_home()
    # Else the interpreter looks for cycles in all that was imported: a fifth of a short command's time.
    atexit.register(gc.freeze)
    atexit.register(stopping.ignore_at_exit, _stop)  # the first is called last: another's callback may hang
    # Installed before the imports, so that a signal during them is handled too.
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    warnings.showwarning = partial(_show_warning, warnings.showwarning)
    open_streams()
    add_environment()
    add_address_keys(" ".join(sys.argv))
    if foreign := exempt_loopback(os.environ):
        Output().note(f"note: environment no_proxy: {', '.join(foreign)} is left out: HTTP clients can't read it")
    try:
        check_key_log()
        _refuse_undecodable()
        code = _run()
        sys.stdout.flush()
    except WebGymError as error:
        fail(str(error), _find_limit(error) or error.hint or _default_hint(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(_report_stop(signal.SIGINT))
    except Terminated:
        sys.exit(_report_stop(signal.SIGTERM))
    except OSError as error:
        sys.exit(_os_error(error))
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            sys.exit(_explain(error))
        discard(sys.stdout)  # click caught it first
        sys.exit(0)
    except Exception as error:  # noqa: BLE001 - the outermost boundary: click's usage errors, and our own bugs
        sys.exit(_click_error(error))
    if code == 130:  # typer's code for KeyboardInterrupt
        _report_stop(signal.SIGINT)
    sys.exit(code if isinstance(code, int) else 0)


def _run() -> Any:
    """Run the command and return Typer's result. The imports are here because Ctrl-C is handled by now."""
    gc.disable()  # what is imported stays: there are no cycles to look for yet
    from typer.main import get_command

    from webgym_cli.cli.app import build_app

    command = get_command(build_app(*sys.argv[1:2]))
    gc.freeze()
    gc.set_threshold(50_000)  # a garbage search per 700 or 5,000 allocations is 3 % of a start: imports go on below
    gc.enable()
    return command(prog_name="webgym", standalone_mode=False)


def _click_error(error: Exception) -> int:
    """Print a click error in webgym's format, or that a signal stopped the command, and return the exit code.

    Any other exception is a bug and is raised.
    """
    if (stopped := stopping.first_signal()) is not None:
        return _report_stop(stopped)
    explain = getattr(error, "format_message", None)
    if explain is None and (limit := _find_limit(error)):
        fail(" ".join(str(error).split()) or "not enough memory", limit)
        return 1
    if explain is None:
        if type(error).__name__ == "Abort":
            return _report_stop(signal.SIGINT)
        return _explain(error)
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help itself
        error.show()  # type: ignore[attr-defined]
    else:
        context = getattr(error, "ctx", None)
        fail(" ".join(explain().split()), f"{context.command_path if context else 'webgym'} --help")
    return int(getattr(error, "exit_code", 1))


def _explain(error: BaseException) -> int:
    """Print what a plug-in raised, or caused in webgym, and return the exit code; any other exception is raised."""
    from webgym_cli.util.user_code import find_first, find_place, has_user_modules

    first = find_first(error)
    place, is_users = find_place(first)
    if os.environ.get(TRACEBACK) or not (is_users or (has_user_modules() and isinstance(error, Exception))):
        raise error
    fault = when(not is_users, "what a plug-in returned, or a bug of webgym; ")
    fail(
        f"{place}: {type(first).__name__}: {' '.join(str(first).split())}"[:_REASON],
        f"{fault}{TRACEBACK}=1 and the same command show all the lines it passed",
    )
    return 1


def _os_error(error: OSError) -> int:
    """Print an operating-system error and return the exit code; one without an errno is a bug."""
    from webgym_cli.util.user_code import find_place

    if isinstance(error, BrokenPipeError):  # `webgym ... | head`: not an error
        discard(sys.stdout)
        return 0
    if error.errno is None or find_place(error)[1]:
        return _explain(error)
    fail(explain_os_error(error), _find_limit(error) or ROOM)
    return 1


def _require_docstrings() -> None:
    """Start the process again if the interpreter has dropped docstrings (`PYTHONOPTIMIZE=2`)."""
    if sys.flags.optimize > 1:
        # they are the help pages, and the descriptions of tools that a policy sees
        os.environ["PYTHONOPTIMIZE"] = "1"
        os.execv(sys.executable, [sys.executable, "-P", "-m", "webgym_cli", *sys.argv[1:]])


def _require_home() -> None:
    """Name a home folder that is not there for a user without one, as of an unknown user id in a container.

    Else `~` would be a folder's name, and Playwright's driver would end with a traceback of its own.
    """
    if os.path.expanduser("~") == "~":  # noqa: PTH111 - importing pathlib takes longer than this
        os.environ["HOME"] = "/nonexistent"


def _refuse_undecodable() -> None:
    """Raise `UsageError` for an argument, a folder or a setting that is not UTF-8 and could be stored in no file."""
    try:
        here = os.getcwd()  # noqa: PTH109 - importing pathlib takes longer than this
    except FileNotFoundError:
        os.chdir("/")  # hints are made with absolute paths
        raise UsageError("the current folder was removed", hint="cd to another one") from None
    variables = (f"{name}={value}" for name, value in os.environ.items() if name.startswith("WEBGYM_"))
    for text in (*sys.argv[1:], here, *variables):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{os.fsencode(text)!r} is not UTF-8", hint="rename the file or folder (mv)") from None


def _find_limit(error: BaseException) -> str:
    """Return the hint for an error by a limit of the process (`ulimit`); empty for other errors."""
    causes = (error, error.__cause__, error.__context__)
    if any(isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE) for cause in causes):
        return "allow more open files: ulimit -n 4096, then the same command again"
    if isinstance(error, MemoryError) or _NO_MEMORY.search(f"{type(error).__name__}: {error}"):
        return "free memory (free -m), or raise the limits (ulimit -v, ulimit -u), then the same command again"
    return ""


def _default_hint(error: WebGymError) -> str:
    """Return the hint for an error that has none."""
    if isinstance(error, UsageError):
        return " ".join(["webgym", *_typed_command(), "--help"])
    if isinstance(error, StoreError):
        return ROOM
    return "webgym doctor" if isinstance(error, JobError) else AGAIN


def _typed_command() -> list[str]:
    """Return the words that name the command: two for one of a group."""
    return sys.argv[1:3] if sys.argv[1:2] in (["config"], ["env"], ["tasks"], ["tools"]) else sys.argv[1:2]


def _show_warning(usual: Callable[..., None], message: Warning | str, *where: Any, **more: Any) -> None:
    """Print a warning; webgym's own are meant for users and are shown without a code location."""
    if isinstance(message, UserNote):
        Output().note(f"note: {message}")
    else:
        usual(message, *where, **more)


def _stop(received: int, _: object) -> NoReturn:
    """Raise what ends the command, only once: a second signal must not cut its clean-up short."""
    stopping.ignore_further(received)
    stopping.interrupt_work()
    raise Terminated if received == signal.SIGTERM else KeyboardInterrupt


def _report_stop(received: int) -> int:
    """Print that a signal stopped the command and whether it can be resumed; return the exit code."""
    how = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[signal.Signals(received)]
    if set(_typed_command()[-1:]) & set(RESUMABLE):
        fail(f"{how}; what was finished is stored", AGAIN)
    else:
        fail(how, "the same command again")
    return 128 + received
