"""Sphinx's configuration of every site: copied beside the pages, so that `sphinx-build` can make them by hand too.

It reads nothing of a profile: all that one says stands in the pages, as text.
"""

from pathlib import Path

project = "headdiv"
html_title = "headdiv"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "headdiv.companion.report.site.mathml"]

nb_execution_mode = "off"  # companions are executed already
nb_ipywidgets_js = {}  # would come from a network
nb_mime_priority_overrides = [("*", "application/vnd.jupyter.widget-view+json", None)]
nb_merge_streams = True
nb_render_markdown_format = "gfm"  # outputs with tables
myst_enable_extensions = ["attrs_block", "dollarmath"]
myst_heading_anchors = 3
myst_footnote_transition = False
smartquotes = False  # what pages say stays as it is: --config in a command, quotes in a title
suppress_warnings = ["mystnb.unknown_mime_type", "mystnb.mime_priority", "myst.header", "config.cache"]

html_theme = "furo"
html_static_path = ["_static"]
html_extra_path = ["extra"]
html_css_files = ["headdiv.css"]
html_js_files = ["headdiv.js"]
html_math_renderer = "mathml"
html_search_scorer = str(Path(__file__).with_name("_static") / "scorer.js")
html_show_search_summary = False  # would be fetched, which browsers refuse to pages from disk
html_copy_source = html_show_sourcelink = html_show_sphinx = html_show_copyright = False

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
default_role = "code"
toc_object_entries = False
