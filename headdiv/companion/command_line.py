"""The command line: `headdiv …` or `python -m headdiv …`. A mistake is one sentence and status 2, a bug status 1."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from headdiv import __version__
from headdiv.core.errors import HeaddivError

EXTRAS = {  # by missing package, the extra that installs it
    "accelerate": "headdiv[hf]",
    "transformers": "headdiv[hf]",
    "tensorboard": "headdiv[tensorboard]",
}

PATH = click.Path(path_type=Path)
EXPERIMENT = click.argument("experiment", metavar="PAPER/TASK")
VARIANT = click.argument("variant")
SEED = click.option("--seed", type=int, default=1, show_default=True, help="Any; tables show the profile's own.")
PROFILE = click.option("--profile", default="quick", show_default=True, help="Name of a file in config/, or its path.")


@click.group(context_settings={"max_content_width": 120})
@click.version_option(__version__)
def cli() -> None:
    """Reproduce, compare and use methods that make the heads of multi-head attention less redundant."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("headdiv").setLevel(logging.INFO)


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table with a column for each key; numbers have four decimals."""
    from tabulate import tabulate

    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    click.echo(tabulate(cells, columns, "plain", disable_numparse=True))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


@cli.command()
@click.argument("names", nargs=-1, required=True, type=PATH, metavar="[FILES]... [FOLDER]")
@click.option("--data", is_flag=True, help="Write a profile for the pairs of sentences in FILES, too.")
@click.option("--languages", nargs=2, metavar="SOURCE TARGET", help="Of FILES, where their names do not say.")
def init(names: tuple[Path, ...], data: bool, languages: tuple[str, str] | None) -> None:
    """Write profiles, notebooks and the workflow into FOLDER.

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
    click.echo(f"{folder}: {len(written)} files written; what was there has stayed as it is")
    if profile:
        click.echo(f"{profile}: the profile of your pairs")
    click.echo(next_steps(folder, profile.stem if profile else None))


@cli.command()
@PROFILE
def demo(profile: str) -> None:
    """Train a small Transformer and a small DEACON, and draw a head of two that learnt more."""
    click.echo("Two small Transformers learn to translate a toy language,\none of them with DEACON. About a minute.\n")
    from headdiv.companion.report import demo

    rows, picture = demo.demo(profile)
    print_table(rows)
    click.echo(demo.where_to_go_on(picture))


@cli.command()
@click.argument("name")
def fetch(name: str) -> None:
    """Download the public data set NAME and check it; data/README.md lists the sets."""
    from headdiv.companion import paths
    from headdiv.companion.data import public_sets

    folder = public_sets.fetch(name, paths.raw())
    click.echo(f"{folder} is complete. Licence: {public_sets.load_registry()[name].licence}")


@cli.command()
@EXPERIMENT
@PROFILE
def params(experiment: str, profile: str) -> None:
    """Count the parameters of every variant and compare them with the paper's."""
    from headdiv.companion.experiments.parameters import audit

    columns = ("parameters", "at_paper_sizes", "paper", "follows")
    print_table(
        [
            {"variant": variant} | {column.replace("_", " "): row[column] for column in columns if row[column]}
            for variant, row in audit(profile, experiment).items()
        ]
    )


@cli.command()
@EXPERIMENT
@VARIANT
@SEED
@PROFILE
@click.option("--no-scores", is_flag=True, help="Train alone, and leave evaluation to the run's notebook.")
@click.option(
    "--tensorboard", type=PATH, metavar="FOLDER", help="Write numbers of steps and epochs there for TensorBoard."
)
def train(experiment: str, variant: str, seed: int, profile: str, no_scores: bool, tensorboard: Path | None) -> None:
    """Train and evaluate one run and record its metrics.

    Under torchrun all ranks train together and the first one evaluates:
    torchrun --nproc-per-node 2 -m headdiv train deacon/lm baseline
    """
    from headdiv.companion.experiments import evaluation, results, running
    from headdiv.companion.experiments.profiles import run_config
    from headdiv.core import distributed

    config = run_config(profile, experiment, variant, seed)
    if running.is_trained(config) and distributed.is_first():
        click.echo(f"{config.label}: already trained, in {running.run_folder(config)}")
    with running.tensorboard_log(tensorboard) if tensorboard else contextlib.nullcontext() as log:
        run = running.train(config, log=log)
    if no_scores or not distributed.is_first():
        return
    metrics = evaluation.evaluate(run)
    path = results.record(metrics, profile)
    print_table(
        [
            {"score": run.task.score_label(name), "value": score["value"], "unit": score["unit"]}
            for name, score in metrics["scores"].items()
        ]
    )
    click.echo(path)


@cli.command()
@EXPERIMENT
@PROFILE
@click.option("--arm", help="This variant alone.")
def tune(experiment: str, profile: str, arm: str | None) -> None:
    """Tune an experiment's arms by validation loss, and print what was tried.

    The profile's section 'tune' says how; what is stored is not trained again. Runs then take each arm's choice.
    """
    from headdiv.companion.experiments import tuning
    from headdiv.companion.experiments.profiles import Runs
    from headdiv.companion.report.tuning import tuning_data

    variants = [tuning.tune(tuned).arm for tuned in Runs(profile).arms_of(experiment, arm)]
    data = tuning_data(profile, experiment)
    (table,) = data.tables.values()
    print_table(table[data.numbers["variant"].isin(variants)].to_dict("records"))


@cli.command()
@click.argument("paper")
@PROFILE
def draw(paper: str, profile: str) -> None:
    """Write all tables and figures of PAPER into results/<profile>."""
    from headdiv.companion.report.draw import draw_paper

    draw_paper(profile, paper)


@cli.command()
@click.argument("name", metavar="PAPER/TABLE")
@click.argument("paths", nargs=-1, type=PATH)
@PROFILE
def table(name: str, paths: tuple[Path, ...], profile: str) -> None:
    """Print a paper's table with ours beside it, or write it to PATHS (.csv, .md).

    A table of results has the name of its experiment (deacon/qa); deacon/sources is the composition of the
    language model's training text.
    """
    from headdiv.companion.experiments.checking import refuse_outdated
    from headdiv.companion.report.tables import experiment_of_table, table_data, write_table

    refuse_outdated(profile, experiment_of_table(name, profile))
    if paths:
        write_table(profile, name, *paths)
    else:
        click.echo(table_data(profile, name).markdown())


@cli.command()
@click.argument("name")
@click.argument("paths", nargs=-1, required=True, type=PATH)
@PROFILE
def figure(name: str, paths: tuple[Path, ...], profile: str) -> None:
    """Draw the figure NAME from stored results into PATHS (.png, .svg, .pdf).

    Beside those of a profile there is <paper>_<task>_pruning, drawn from what `headdiv importance` stores.
    """
    from headdiv.companion.experiments.checking import refuse_outdated
    from headdiv.companion.experiments.profiles import Runs
    from headdiv.companion.report.figures import figure_entry, write_figure

    runs = Runs(profile)
    for experiment in figure_entry(name, runs).experiments_in(runs):
        refuse_outdated(profile, experiment)
    write_figure(name, profile, *paths)


@cli.command()
@PROFILE
@click.option("--baseline", default="baseline", show_default=True, help="The variant that others are compared with.")
def compare(profile: str, baseline: str) -> None:
    """Compare the variants of every stored experiment with one of them.

    Differences are of the lowest validation loss and of the task's main score, ± half of a simultaneous 95 % interval.
    """
    from headdiv.companion.experiments.checking import refuse_outdated
    from headdiv.companion.report.compare import as_text

    refuse_outdated(profile)
    click.echo(as_text(profile, baseline))


@cli.command()
@PROFILE
def report(profile: str) -> None:
    """Write the profile's report to results/<profile>/report, of what `headdiv draw` drew before."""
    from headdiv.companion.experiments.checking import refuse_outdated
    from headdiv.companion.report.site.build import write_report

    refuse_outdated(profile)
    click.echo(f"report: {write_report(profile)}")


@cli.command()
@PROFILE
@click.option("--no-scores", is_flag=True, help="Leave the scores out: then the data are not read.")
@click.option("--write", is_flag=True, help="Put today's scores into the stored metrics.")
def check(profile: str, no_scores: bool, write: bool) -> None:
    """Check stored runs against their profile, and score their outputs again.

    Runs must have the profile's settings, data and plugins, and have learnt something. No model is needed, but the
    data's references are.
    """
    from headdiv.companion.experiments.checking import check_profile

    for sentence in check_profile(profile, not no_scores, write):
        click.echo(sentence)


@cli.command()
@click.option("--paper", help="Of this paper alone.")
@click.option("-v", "--verbose", is_flag=True, help="Show every claim, and how it was computed.")
def claims(paper: str | None, verbose: bool) -> None:
    """Print the papers' claims: parameter counts, contradictions by cause, and relations that runs decide."""
    from headdiv.companion.report.claims import as_text, ledger

    click.echo(as_text(ledger(paper), verbose))


@cli.command()
@click.argument("model")
@click.option("--text", type=PATH, required=True, help="One example a line.")
@click.option("--target", type=PATH, help="What an encoder-decoder writes, line for line; the text where left out.")
@click.option("--output", type=PATH, default="heads", show_default=True, help="Folder for table and drawings.")
def heads(model: str, text: Path, target: Path | None, output: Path) -> None:
    """Measure the heads of MODEL, a name on the Hugging Face hub or a folder, over a text.

    Writes heads.csv, and a heat map by layer and head of each measure, over the first 1,000 lines.
    """
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # without a network it logs each of its tries, twice
    from headdiv.companion.report.model_heads import measure_model, write_model_heads

    table = measure_model(model, text, target)
    path = write_model_heads(table, output)
    print_table(table.reset_index().to_dict("records"))
    click.echo(path)


@cli.command(name="list")
@PROFILE
def list_names(profile: str) -> None:
    """Print the names that commands take: profiles, a profile's variants, tables and figures, methods, data sets."""
    from headdiv.companion import paths
    from headdiv.companion.data.public_sets import load_registry
    from headdiv.companion.experiments.profiles import Runs
    from headdiv.companion.report.figures import figures_of
    from headdiv.companion.report.tables import tables_of
    from headdiv.methods import METHODS

    runs = Runs(profile)
    names: dict[str, Iterable[str]] = {"profiles": sorted(path.stem for path in paths.profiles_folder().glob("*.yaml"))}
    for experiment in runs.experiments():
        names[experiment] = dict.fromkeys(run.variant for run in runs.planned(experiment))
    names |= {"tables": tables_of(runs), "figures": figures_of(runs), "methods": METHODS, "data sets": load_registry()}
    for kind, kind_names in names.items():
        click.echo(f"{kind}: {', '.join(kind_names)}")


@cli.command()
@EXPERIMENT
@VARIANT
@SEED
@PROFILE
def importance(experiment: str, variant: str, seed: int, profile: str) -> None:
    """Mask each head of a trained run alone, then ever more of them, and record the validation loss.

    In as many steps as the experiment's `pruning` says, or ten. It lies beside the run's metrics as importance.json,
    from which the figure <paper>_<task>_pruning is drawn.
    """
    from headdiv.companion.experiments.importance import importance_record, record_importance
    from headdiv.companion.experiments.profiles import Runs, run_config
    from headdiv.companion.experiments.running import load_run

    run = load_run(run_config(profile, experiment, variant, seed))
    steps = Runs(profile).pruned().get(experiment, 10)
    click.echo(record_importance(importance_record(run, steps), profile))


def main() -> None:
    """Entry point."""
    try:
        cli(prog_name="headdiv", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        message, status = _message_and_status(error)
        if status == 1:
            traceback.print_exc()
        print(f"headdiv: {message}", file=sys.stderr)
        sys.exit(status)


def _message_and_status(error: BaseException) -> tuple[str, int]:
    """The message about an error, and the status that the process ends with."""
    match error:
        case HeaddivError():
            return str(error), 2
        case click.ClickException():
            return error.format_message(), error.exit_code
        case click.Abort() | KeyboardInterrupt():
            return "interrupted", 130
        case ModuleNotFoundError(name=str(name)) if not name.startswith("headdiv"):
            package = EXTRAS.get(name.partition(".")[0], "headdiv[pipeline]")
            return f"{name} is not installed; this needs pip install '{package}'", 2
        case OSError(filename=filename) if error.strerror:
            return f"{filename or 'output'}: {error.strerror}", 2
    return f"{type(error).__name__}, which was not expected: {error}", 1
