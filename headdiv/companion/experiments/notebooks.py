"""Executing a notebook as a step of the pipeline."""

from __future__ import annotations

import ast
import base64
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headdiv.companion import paths
from headdiv.core import progress
from headdiv.core.errors import ConfigError, DataError, HeaddivError
from headdiv.core.files import replacing
from headdiv.core.settings import nearest

KERNEL = "python3"


def execute(notebook: Path, output: Path, parameters: dict[str, Any], scratch: Path) -> None:
    """Run a notebook with papermill; the executed copy becomes ``output`` only if every cell succeeded.

    Args:
        notebook: the one to execute; its cell tagged ``parameters`` names every parameter, with its default.
        parameters: values in the place of defaults.
        scratch: folder for the copy while it runs, and for good where a cell fails.

    Raises:
        DataError: ``notebook`` is not there, or no notebook.
        ConfigError: the notebook has no such parameter.
        HeaddivError: a cell failed; the sentence names the cell, its error and the copy to look at.
    """
    # jsonschema imports it where it is there, and it spends a second and more on a grammar of addresses.
    sys.modules.setdefault("rfc3987_syntax", None)
    import nbformat
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillException, PapermillExecutionError

    if not notebook.is_file():
        raise DataError(f"{notebook}: no such notebook")
    try:
        content = nbformat.read(notebook, as_version=4)
    except (AttributeError, TypeError, ValueError, nbformat.ValidationError) as error:
        found = str(error).partition("\n")[0][:200]
        raise DataError(
            f"{notebook}: expected a notebook in Jupyter's format, found something else ({found})"
        ) from None
    try:
        known = _declared(cell.source for cell in content.cells if "parameters" in cell.metadata.get("tags", []))
    except SyntaxError as error:
        raise DataError(f"{notebook}: the cell with parameters is not Python ({error.msg})") from None
    for name in parameters:  # which papermill writes into the notebook's code as they are
        if name not in known:
            raise ConfigError(f"{notebook}: no parameter {name!r}{nearest(name, known)}")
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
                # Jupyter interrupts a kernel before it ends it; one that is still busy would call that an error.
                extra_arguments=["--log-level=CRITICAL"],
            )
        except PapermillExecutionError as error:
            what = f"{error.ename}: {error.evalue}"
            raise HeaddivError(f"{notebook}, cell {error.exec_count}: {what} (the copy is {copy})") from None
        except DeadKernelError:
            raise HeaddivError(f"{notebook}: the kernel died (the copy is {copy})") from None
        except PapermillException as error:
            raise HeaddivError(f"{notebook}: {error}") from None
    shrink_pictures(copy)
    with replacing(output) as temporary:
        shutil.move(copy, temporary)  # the results may be another file system


def shrink_pictures(notebook: Path) -> None:
    """Give the pictures in a notebook's outputs 256 colours, which makes them a third as large."""
    import nbformat
    from PIL import Image

    content = nbformat.read(notebook, as_version=4)
    outputs = (output for cell in content.cells for output in cell.get("outputs", ()))
    for data in (output.data for output in outputs if "image/png" in output.get("data", {})):
        file = io.BytesIO()
        with Image.open(io.BytesIO(base64.b64decode(data["image/png"]))) as picture:
            picture.convert("RGB").quantize(256).save(file, "PNG", optimize=True)
        data["image/png"] = base64.b64encode(file.getvalue()).decode()
    nbformat.write(content, notebook)


def _declared(cells: Iterable[str]) -> list[str]:
    """The names that are assigned in these cells."""
    nodes = (node for source in cells for node in ast.walk(ast.parse(source)))
    return [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
