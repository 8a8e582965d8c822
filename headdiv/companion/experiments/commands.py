"""Commands that begin a project, and that prepare, train and mask the runs of a profile."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from headdiv.companion.options import (
    EXPERIMENT,
    PATH,
    SEED,
    VARIANT,
    print_json,
    print_table,
    profile_option,
    say,
)

STEPS = 10  # of a pruning curve


@click.command()
@click.argument("names", nargs=-1, required=True, type=PATH, metavar="[FILES]... [FOLDER]")
@click.option("--data", is_flag=True, help="Write a profile for the pairs of sentences in FILES, too.")
@click.option("--languages", nargs=2, metavar="SOURCE TARGET", help="Of FILES, where their names do not say.")
def init(names: tuple[Path, ...], data: bool, languages: tuple[str, str] | None) -> None:
    """Write profiles, notebooks and the workflow into FOLDER, for `snakemake` and `jupyter lab` there.

    Your own pairs: `headdiv init --data train.en train.fr FOLDER`, or one table of two columns, pairs.en-fr.tsv. They
    are split, unless FILES of validation and test follow. A FOLDER that is not there yet has a name without an ending;
    where it is left out, it is the project's folder, or this one.
    """
    from headdiv.companion import paths
    from headdiv.companion.data.own_pairs import write_profile
    from headdiv.companion.project import next_steps, write_project

    *files, folder = names
    if data and folder.suffix and not folder.is_dir():
        files, folder = list(names), paths.home()
    if files and not data:
        raise click.UsageError(f"found {len(names)} names, expected one FOLDER; --data takes files")
    profile = write_profile(folder, files, languages) if data else None
    written = write_project(folder)
    say(f"{folder}: {len(written)} files written; what was there has stayed as it is")
    if profile:
        say(f"{profile}: the profile of your pairs")
    say(next_steps(folder, profile.stem if profile else None))


@click.command(hidden=True)
@EXPERIMENT
@profile_option()
def prepare(experiment: str, profile: str) -> None:
    """Fetch an experiment's data, prepare its corpus as a run would, and print the corpus's statistics as JSON.

    Of translation they have the BLEU of the test set's references when these are tokenised and joined again.
    """
    from headdiv.companion.experiments.profiles import Runs
    from headdiv.companion.tasks import TASKS

    config = Runs(profile).planned(experiment)[0]
    task, data = TASKS[config.kind], config.data
    corpus = task.load(data)
    scores = {name: score["value"] for name, score in task.reference_scores(data, corpus).items()}
    print_json(corpus.statistics | {"test": corpus.statistics["test"] | scores})


@click.command()
@EXPERIMENT
@VARIANT
@SEED
@profile_option()
@click.option("--no-scores", is_flag=True, help="Train alone, and leave evaluation to the run's notebook.")
@click.option(
    "--tensorboard", type=PATH, metavar="FOLDER", help="Write each epoch's numbers to FOLDER for TensorBoard."
)
def train(experiment: str, variant: str, seed: int, profile: str, no_scores: bool, tensorboard: Path | None) -> None:
    """Train and evaluate one run and record its metrics, without a notebook.

    Under torchrun all ranks train together and the first one evaluates:
    torchrun --nproc-per-node 2 -m headdiv train deacon/lm baseline
    """
    from headdiv.companion.experiments import evaluation
    from headdiv.companion.experiments import running as training
    from headdiv.companion.experiments.curve_log import tensorboard_log
    from headdiv.companion.experiments.papers import task_of
    from headdiv.companion.experiments.profiles import run_config
    from headdiv.companion.experiments.results import record
    from headdiv.companion.tasks import TASKS
    from headdiv.core import distributed

    config = run_config(profile, experiment, variant, seed)
    label, spec = task_of(experiment).label(variant), TASKS[config.kind]
    if training.is_trained(config) and distributed.is_first():
        say(f"{label}, seed {seed}: already trained, in {training.run_folder(config)}")
    with tensorboard_log(tensorboard) if tensorboard else contextlib.nullcontext() as callback:
        run = training.train(config, callback=callback)
    if no_scores or not distributed.is_first():
        return
    metrics = evaluation.evaluate(run)
    path = record(metrics, profile)
    print_table([(spec.score_label(name), score["value"], score["unit"]) for name, score in metrics["scores"].items()])
    say(f"{path}")


@click.command(hidden=True)
@EXPERIMENT
@VARIANT
@SEED
@profile_option()
@click.option("--steps", type=click.IntRange(1), help="Of the pruning curve; the profile's `pruning`, or 10.")
@click.option("--scores", is_flag=True, help="Score the test set without each head as well: slow.")
@click.option("--loss-alone", is_flag=True, help="Measure the validation loss alone: the test set is not read.")
def importance(
    experiment: str, variant: str, seed: int, profile: str, steps: int | None, scores: bool, loss_alone: bool
) -> None:
    """Mask each head of a trained run alone, then ever more of them, and record what changes.

    Where the profile asks for it (`pruning`), the loss alone is measured unless --scores is given. The result lies
    beside the run's metrics as importance.json, from which the figure <paper>_pruning is drawn.
    """
    from headdiv.companion.experiments.importance import importance_record, importance_table, record_importance
    from headdiv.companion.experiments.profiles import Runs, run_config
    from headdiv.companion.experiments.running import load_run
    from headdiv.core.errors import ConfigError

    if scores and loss_alone:
        raise ConfigError("--scores: it reads the test set, which --loss-alone does not")
    run, asked = load_run(run_config(profile, experiment, variant, seed)), Runs(profile).pruned().get(experiment)
    loss_alone |= asked is not None and not scores
    record = importance_record(run, steps or asked or STEPS, scores, loss_alone)
    say(importance_table(record))
    say(f"{record_importance(record, profile)}")


COMMANDS = (init, prepare, train, importance)
