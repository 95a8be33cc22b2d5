"""Run the passes inside PyTensor's own compilation, in users' programs.

``import scanopt_cli`` registers the passes in PyTensor's ``optdb`` under the tag ``scanopt``, off
by default. A mode that includes the tag uses them, and so does every compilation inside of
``with scanopt_cli.enabled():``.
"""
