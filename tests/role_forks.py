"""Runs scripts in processes forked from a role's interpreter, which has imported their libraries: half a minute's work.

    python role_forks.py MODULE...

Each line of stdin is a request as JSON: `argv` as the interpreter's, `stdin`, and the files `out` and `err`. The exit
status of each is written to stdout.
"""

import importlib
import json
import os
import runpy
import sys


def become(argv, stdin, out, err):
    """Be the interpreter of a script, or of `-c CODE`."""
    os.dup2(os.memfd_create("stdin"), 0)
    os.pwrite(0, stdin.encode(), 0)
    for number, file in ((1, out), (2, err)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    sys.stdin, sys.argv = open(0), argv  # noqa: SIM115
    if argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        exec(compile(argv[1], "-c", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_path(argv[0], run_name="__main__")
    sys.stdout.flush()


def main(modules):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in modules:
        importlib.import_module(name)
    for line in sys.stdin:
        if pid := os.fork():
            answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
            answers.flush()
        else:
            become(**json.loads(line))
            os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
