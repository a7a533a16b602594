"""Compares answers in LaTeX with `math-verify`: one JSON pair per line on stdin, `true` or `false` per line on stdout.

A separate process, because sympy may compute endlessly on a short text, and math-verify's timeouts are signals, which
only the main thread of a process handles.
"""

import json
import logging
import resource
import sys

# Timeouts of math-verify itself, in seconds: long, because they include time lost on a busy machine.
PARSE_SECONDS, COMPARE_SECONDS = 10, 20
# CPU time of one comparison, in seconds, after which the kernel ends the process: math-verify's signals can't
# interrupt the computation of a single huge power.
CPU_SECONDS = 8
# Address space in bytes.
MEMORY = 2 * 2**30


def main() -> None:
    """Write `ready`, then answer until stdin ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    logging.disable(logging.CRITICAL)
    from math_verify import LatexExtractionConfig, parse, verify

    # LaTeX only: math-verify passes plain expressions to sympy's parse_expr, which evaluates them as Python.
    only_latex = [LatexExtractionConfig()]
    _write("ready")
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        given, wanted = (
            parse(f"${text}$", extraction_config=only_latex, parsing_timeout=PARSE_SECONDS) for text in json.loads(line)
        )
        is_equal = bool(given and wanted) and verify(wanted, given, timeout_seconds=COMPARE_SECONDS)
        _write(json.dumps(bool(is_equal)))


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
