"""The built-in passes, one module or package each; `scanopt_cli.pipeline` runs them."""
