"""The pass `scan-to-loop`: turns Scans into the loops of `scanopt_cli.loop`."""
