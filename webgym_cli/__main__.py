"""The entry point of the executable, also of `python -m webgym_cli`."""

import sys


def main() -> None:
    """Run webgym; Ctrl-C during the imports ends it with a message too, not with a traceback."""
    try:
        from webgym_cli.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("webgym: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
