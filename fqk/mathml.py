"""A Sphinx extension: equations become MathML as the book is built; no page loads MathJax."""

from html import escape

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator


def inline(writer: HTML5Translator, node: nodes.math) -> None:
    """``$…$`` inside a sentence."""
    writer.body.append(_mathml(node, "inline"))
    raise nodes.SkipNode


def display(writer: HTML5Translator, node: nodes.math_block) -> None:
    """``$$…$$`` on lines of its own, with its number and the anchor that references point to."""
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append(_mathml(node, "block") + "</div>\n")
    raise nodes.SkipNode


def _mathml(node: nodes.math | nodes.math_block, display: str) -> str:
    latex = node.astext()
    return convert(latex, display=display).replace("<math", f'<math alttext="{escape(latex)}"', 1)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register as ``html_math_renderer: mathml``."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
