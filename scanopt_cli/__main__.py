"""The command ``scanopt``, and ``python -m scanopt_cli``."""

import sys

from scanopt_cli.cli.exits import ExitCode


def main() -> None:
    """Run the command line; an interrupt while it is imported ends it quietly as well."""
    try:
        from scanopt_cli.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
