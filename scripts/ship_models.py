"""Write the trained runs of the profile `explorer` into data/models, which the explorer opens with.

Run it after both are trained: headdiv train deacon/translation baseline --profile explorer, and direct-8.
"""

from headdiv.companion import paths
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import load_run
from headdiv.companion.experiments.shipped import PROFILE, ship
from headdiv.companion.report.explorer_view import held_out_covariances
from headdiv.companion.tasks.base import held_out_loss

for config in Runs(PROFILE).configs():
    run = load_run(config)
    ship(run, held_out_covariances(run), paths.home() / "data" / "models")
    print(config.label, held_out_loss(run, "valid"))
