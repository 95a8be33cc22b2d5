"""How Sphinx builds the site: ``make docs``. Nothing is fetched from the network."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from scanopt_cli.version import __version__  # noqa: E402

project = "scanopt"
author = "the authors of scanopt"
project_copyright = author
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "generated_pages",  # in _ext
]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
# Notebooks are kept without outputs.
nb_execution_mode = "auto"
nb_execution_timeout = 300
nb_execution_in_temp = True
nb_execution_raise_on_error = True
# What other pages include is no page itself.
exclude_patterns = ["rules.md", "figures/tables/*", "_ext/*"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
# docs/rules.md begins with headings of the third level, for GitHub.
suppress_warnings = ["myst.header"]
# Blocks that name no language: examples in docstrings of rules and passes.
highlight_language = "default"
# Quotes in texts of commands are typed as they are.
smartquotes = False
nitpicky = True
# Types of Python, NumPy and PyTensor, whose own pages are not fetched while this is built, and
# names in docstrings that are no public ones.
nitpick_ignore_regex = [("py:.*", ".*")]
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

html_theme = "pydata_sphinx_theme"
html_title = "scanopt"
html_static_path = ["_static"]
html_css_files = ["scanopt.css"]
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "github_url": "https://github.com/scanopt/scanopt",
    "logo": {"text": "scanopt"},
    "navbar_align": "left",
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
