"""What reproduces the papers: data, tasks, experiments, report and command line, built on the library.

from headdiv import companion

config = companion.run_config("quick", "deacon/translation", "direct-8", seed=1)
run = companion.train(config)
companion.apply(run, "The old dog sees a small cat.")
"""

from headdiv.core import lazy as _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__, "pipeline")
