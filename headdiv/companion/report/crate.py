"""A profile's results as a Workflow Run RO-Crate: files, the workflow that made them, each training as an action."""

from __future__ import annotations

from pathlib import Path

from headdiv.companion import paths
from headdiv.companion.experiments.outdated import refuse_outdated
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import with_results
from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.report.scale import machine
from headdiv.core.errors import DataError
from headdiv.core.files import replacing

LEFT_OUT = ("report", "companions")  # made anew from the rest
PROFILES = [f"https://w3id.org/ro/wfrun/{name}" for name in ("process/0.5", "workflow/0.5")]
PROFILES += ["https://w3id.org/workflowhub/workflow-ro-crate/1.0"]


def _archived(file: Path) -> bool:
    """Whether a file of the results belongs into the crate: what begins with a dot was left by a process that ended."""
    return file.parts[0] not in LEFT_OUT and not any(part.startswith(".") for part in file.parts)


def write_crate(profile: str, folder: Path) -> Path:
    """Write the crate of a profile's stored results to ``folder``, which may not be there yet.

    Its root names the profiles that it follows. The pipeline is the main workflow and one action of it has all results;
    every training is an action of its own, with configuration, seed, commit and machine. The profile's plugins are in
    it as far as they lie in the project's folder.

    Returns:
        Its ro-crate-metadata.json.

    Raises:
        ConfigError: no such profile.
        DataError: nothing is stored, some runs were made with other settings, or ``folder`` is there.
    """
    from rocrate.model.contextentity import ContextEntity  # here, since importing it takes a noticeable time
    from rocrate.rocrate import ROCrate

    if folder.exists():
        raise DataError(f"{folder}: is there already; expected the name of a new folder")
    refuse_outdated(profile)
    runs, results, home = Runs(profile), paths.results(profile), paths.home()
    stored = [run for group in with_results(profile).values() for run in group]
    crate = ROCrate(gen_preview=False)
    crate.name, crate.license = f"headdiv, {runs.profile.title}", "https://spdx.org/licenses/MIT"
    crate.description = f"Results of the profile {runs.name}: {len(stored)} runs, their tables and figures."
    crate.root_dataset["conformsTo"] = [
        crate.add(ContextEntity(crate, name, {"@type": "CreativeWork", "name": name.rsplit("/", 2)[1]}))
        for name in PROFILES
    ]
    workflow = crate.add_workflow(home / "Snakefile", "Snakefile", main=True, lang="snakemake")
    settings = [crate.add_file(paths.profile_file(profile), f"config/{runs.name}.yaml")]
    plugins = [(home / plugin).resolve() for plugin in runs.profile.plugins]
    settings += [crate.add_file(file, file.relative_to(home).as_posix()) for file in plugins if home in file.parents]
    files = {
        path: crate.add_file(path, f"results/{runs.name}/{path.relative_to(results).as_posix()}")
        for path in sorted(results.rglob("*"))
        if path.is_file() and _archived(path.relative_to(results))
    }
    action = {"@type": "CreateAction", "name": "reproduce-all", "instrument": workflow, "object": settings,
              "result": list(files.values())}  # fmt: skip
    crate.root_dataset["mentions"] = [crate.add(ContextEntity(crate, "#reproduce-all", action))]
    code = crate.add(ContextEntity(crate, "#headdiv", {"@type": "SoftwareApplication", "name": "headdiv"}))
    for run in stored:
        made = metrics_path(profile, run.experiment, run.variant, run.seed).parent
        training = {
            "@type": "CreateAction",
            "name": f"train {run.experiment} {run.variant}, seed {run.seed}",
            "description": f"hash {run.hash}; commit {run.provenance.commit or 'outside git'}; {machine(run)}; "
            f"{run.cost.training_seconds:.0f} s of training",
            "instrument": code,
            "object": settings,
            "result": [entity for path, entity in files.items() if path.parent == made],
        }
        name = f"#{run.experiment}/{run.variant}/{made.name}"  # two experiments may have one training, with one hash
        crate.root_dataset.append_to("mentions", crate.add(ContextEntity(crate, name, training)))
    with replacing(folder) as temporary:
        crate.write(temporary)
    return folder / "ro-crate-metadata.json"
