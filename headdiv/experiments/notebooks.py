"""Executing a notebook as a step of the pipeline."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat

from headdiv.core import paths, progress
from headdiv.core.errors import DataError, HeaddivError
from headdiv.core.files import replacing

KERNEL = "python3"


def execute(notebook: Path, output: Path, parameters: dict[str, Any], scratch: Path) -> None:
    """Run a notebook with papermill; the executed copy becomes ``output`` only if every cell succeeded.

    Args:
        notebook: the one to execute; its cell tagged ``parameters`` holds the defaults.
        output: where the executed copy goes; ``.html`` gives a page, anything else a notebook.
        parameters: values for that cell, handed over as they are (no guessing of types).
        scratch: folder for the copy while it runs, and for good where a cell fails.

    Raises:
        HeaddivError: a cell failed; the sentence names the cell, its error and the copy to look at.
    """
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillException, PapermillExecutionError

    if not notebook.is_file():
        raise DataError(f"{notebook}: no such notebook")
    scratch.mkdir(parents=True, exist_ok=True)
    copy = scratch / notebook.name
    with tempfile.TemporaryDirectory() as private:
        # Kernels started side by side must not share a history database.
        os.environ["IPYTHONDIR"] = private
        os.environ[progress.PLAIN] = "plain"
        try:
            papermill.execute_notebook(
                notebook,
                copy,
                parameters=parameters,
                kernel_name=KERNEL,
                cwd=paths.home(),
                progress_bar=False,
                stdout_file=sys.stdout,
                stderr_file=sys.stderr,
                autosave_cell_every=30,
            )
        except PapermillExecutionError as error:
            what = f"{error.ename}: {error.evalue}"
            raise HeaddivError(f"{notebook}, cell {error.exec_count}: {what} (the copy is {copy})") from None
        except DeadKernelError:
            raise HeaddivError(f"{notebook}: the kernel died (the copy is {copy})") from None
        except PapermillException as error:
            raise HeaddivError(f"{notebook}: {error}") from None
    with replacing(output) as temporary:
        if output.suffix == ".html":
            temporary.write_text(_page(copy), encoding="utf-8")
            copy.unlink()
        else:
            copy.replace(temporary)


def _page(notebook: Path) -> str:
    """An executed notebook as one HTML file that asks for nothing from the network."""
    from nbconvert import HTMLExporter

    content = nbformat.read(notebook, as_version=4)
    formulas: list[str] = []

    def set_aside(formula: re.Match[str]) -> str:  # nbconvert would take MathML apart
        formulas.append(_mathml(formula))
        return f"FORMULA{len(formulas) - 1:04d}END"

    for cell in content.cells:
        if cell.cell_type == "markdown":
            cell.source = FORMULA.sub(set_aside, cell.source)
    exporter = HTMLExporter(exclude_input_prompt=True, exclude_output_prompt=True, embed_images=True)
    page, _ = exporter.from_notebook_node(content)
    page = NETWORK_SCRIPT.sub("", page)
    return re.sub(r"FORMULA(\d{4})END", lambda match: formulas[int(match[1])], page)


FORMULA = re.compile(r"\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^$\n]+?)\$", re.DOTALL)
# MathJax, require.js and mermaid, which nbconvert would load from a server.
NETWORK_SCRIPT = re.compile(r"<script\b(?:(?!</script>).)*?https?://(?:(?!</script>).)*?</script>", re.DOTALL)


def _mathml(formula: re.Match[str]) -> str:
    from latex2mathml.converter import convert

    if formula["display"] is None:
        return convert(formula["inline"].strip())
    return convert(formula["display"].strip(), display="block")
