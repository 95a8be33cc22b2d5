"""The pass `loop-to-scan`: turns the loops of `scanopt_cli.loop` into Scans."""
