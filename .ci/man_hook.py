"""Let a wheel hold the man pages, which are written as it is built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface[Any]):
    """Writes the pages of the source that is built; not into an editable installation."""

    def dependencies(self) -> list[str]:
        """Return what scanopt's command line imports when it says what it can do."""
        wanted = ("typer", "rich", "cloudpickle")
        listed: list[str] = self.metadata.core.dependencies
        return [item for item in listed if item.startswith(wanted)]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the pages, and tell hatch where an installation has them."""
        # pip refuses a Python that is too old once it has the metadata, and says why.
        if version == "editable" or sys.version_info < (3, 12):
            return
        directory = Path(self.root, "build", "man")
        command = [sys.executable, "-m", "scanopt_cli.cli.man_pages", str(directory)]
        # What pip installs for a build, it hands over by PYTHONPATH.
        paths = filter(None, (self.root, os.environ.get("PYTHONPATH")))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(
            command, cwd=self.root, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        for line in done.stdout.splitlines():
            build_data["shared_data"][line] = f"share/man/man1/{Path(line).name}"
