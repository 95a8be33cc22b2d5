"""``python -m scanopt_cli`` runs ``scanopt``."""

from scanopt_cli.cli.app import main

if __name__ == "__main__":
    main()
