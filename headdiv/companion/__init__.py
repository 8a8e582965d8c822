"""What reproduces the papers: data, tasks, experiments, report and command line, built on the library.

from headdiv import companion

config = companion.run_config("quick", "deacon/translation", "direct-8", seed=1)
run = companion.train(config)
run.task.apply(run, "The old dog sees a small cat.")
"""

from typing import Any

import lazy_loader

# Names are listed in ``__init__.pyi``, for type checkers too, and imported on first use: drawing takes seconds.
_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """A name of the stub; an ImportError names the extra where something is not installed."""
    try:
        return _attribute(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("headdiv"):
            raise
        raise ImportError(f"{__name__}.{name} needs {error.name}: pip install 'headdiv[pipeline]'") from error
