"""The passes inside PyTensor's own compilation, in the user's programs.

``import scanopt_cli`` registers them in PyTensor's ``optdb`` under the tag ``scanopt``, off by
default. A mode that includes the tag uses them, and so does every compilation inside of
``with scanopt_cli.enabled():``.
"""
