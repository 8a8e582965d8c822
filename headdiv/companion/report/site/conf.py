"""Sphinx's configuration of every report. It reads nothing of a profile: what a report says stands in its pages."""

project = html_title = "headdiv"
extensions = ["myst_nb"]
exclude_patterns = ["tables"]  # the papers' pages include them

nb_execution_mode = "off"  # notebooks are executed already
nb_ipywidgets_js = {}  # would come from a network
nb_mime_priority_overrides = [("*", "application/vnd.jupyter.widget-view+json", None)]
nb_merge_streams = True
nb_render_markdown_format = "gfm"  # outputs with tables
myst_enable_extensions = ["dollarmath"]
smartquotes = False  # text stays as it is: --config in a command, quotes in a title
suppress_warnings = ["mystnb.unknown_mime_type", "mystnb.mime_priority", "myst.header", "config.cache"]

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["report.css"]
html_copy_source = html_show_sourcelink = html_show_sphinx = html_show_copyright = False
