"""The list of hostile texts at every border, and the worst of all in tables, figures, notebooks and pages."""

import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from headdiv.companion.options import printable
from headdiv.companion.report.site.markup import fenced, html, menu, myst, picture
from headdiv.companion.report.table_data import TableData
from headdiv.companion.report.table_files import as_latex

sys.path.append(str(Path(__file__).parents[1] / "torture"))
from hostile import texts, wrong

ALL = texts()
WORST = "\x1b[31m$x_{$ <script>window.hostile = 1</script> [a](javascript:b) \\input{c} | ![d](e)\n# f\x00"


def test_there_are_a_hundred_and_each_is_another():
    assert len(set(ALL)) >= 100


@pytest.mark.parametrize("text", ALL)
def test_at_each_border_a_text_stays_one(text):
    tokens = MarkdownIt("commonmark").parse(f"before {myst(text)} after")
    assert {child.type for child in tokens[1].children} <= {"text", "text_special"}
    seen = re.sub(r"[\x00-\x1f\x7f]", "\ufffd", " ".join(text.split()))
    assert "".join(child.content for child in tokens[1].children) == f"before {seen} after"
    (block,) = MarkdownIt("commonmark").parse(fenced(picture(text, text, text)))
    assert (block.type, block.info) == ("fence", "{raw} html")
    assert "<" not in html(text)
    assert not re.search("[<>`\n]", menu(text))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", printable(text))

    frame = pd.DataFrame([[text, "1"]], columns=["Architecture", text])
    table = TableData("Table 1", text, text, frame, {text: frame, "other": frame}, {"BLEU": text}, [text], [text])
    tokens = MarkdownIt("commonmark").enable("table").parse(table.markdown())
    kinds = {token.type for token in [*tokens, *(child for each in tokens for child in each.children or ())]}
    assert not kinds & {"html_block", "html_inline", "link_open", "image"}
    rows = [token.type for token in tokens]
    assert rows.count("tr_open") == 4
    assert rows.count("td_open") == 4

    latex = re.sub("^%.*$", "", as_latex(table), flags=re.MULTILINE)  # comments are any text
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == latex.count(r"\end{tabular}") == 2
    assert set(re.findall(r"\\([a-z]+\d*)", latex)) <= LATEX_COMMANDS
    assert len(re.findall(r"\\\\$", latex, re.MULTILINE)) == 4  # the ends of four rows


LATEX_COMMANDS = {"begin", "end", "centering", "caption", "toprule", "midrule", "bottomrule"}
LATEX_COMMANDS |= {"textbackslash", "textasciitilde", "textasciicircum", "pm", "delta", "gamma", "lambda", "to"}


def test_the_worst_of_all_stays_text_in_every_output(folder):
    assert list(wrong(folder, WORST)) == []
