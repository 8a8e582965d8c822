"""A Sphinx extension: formulas as MathML, which browsers draw by themselves, without MathJax and its fonts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer ``mathml``."""
    inline, block = partial(_write, display="inline"), partial(_write, display="block")
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write(translator: HTML5Translator, node: nodes.Element, display: str) -> None:
    from docutils.nodes import SkipNode
    from latex2mathml.converter import convert

    translator.body.append(convert(node.astext().strip(), display=display))
    raise SkipNode
