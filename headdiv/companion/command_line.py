"""The command line: `headdiv …` or `python -m headdiv …`. A mistake is one sentence and status 2, a bug status 1."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from pathlib import Path

import click

from headdiv import __version__
from headdiv.companion import paths
from headdiv.companion.experiments.commands import COMMANDS
from headdiv.companion.options import (
    EXPERIMENT,
    JSON,
    PATH,
    Whole,
    print_json,
    print_table,
    printable,
    profile_option,
    say,
    write_plainly,
)
from headdiv.core.errors import HeaddivError

NEEDED = {  # what brings along a package that is not there
    "accelerate": "headdiv[hf]",
    "transformers": "headdiv[hf]",
    "tensorboard": "headdiv[tensorboard]",
}

tracebacks = False  # whether they are shown


@click.group(cls=Whole)
@click.version_option(__version__)
@click.option("-v", "--verbose", is_flag=True, help="Say more about what is being done.")
@click.option("--traceback", "show", is_flag=True, help="Show where in the code an error was raised.")
def cli(verbose: bool, show: bool) -> None:
    """Reproduce, compare and use methods that make the heads of multi-head attention less redundant."""
    global tracebacks
    tracebacks = show
    logging.basicConfig(format="%(message)s", level=logging.INFO if verbose else logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_printable)


def _printable(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), None
    return True


@cli.command()
@profile_option()
def demo(profile: str) -> None:
    """Train a small Transformer and a small DEACON side by side, and draw a head of two that learnt more: a minute."""
    say("Two small Transformers learn to translate a toy language,\none of them with DEACON. About a minute.\n")
    from headdiv.companion.report.demo import demo as run
    from headdiv.companion.report.demo import where_to_go_on

    rows, picture = run(profile)
    print_table(rows, "keys")
    say(where_to_go_on(picture))


@cli.command()
@click.argument("name")
@click.option("--folder", type=PATH, help="Where to; data/raw where left out.")
def fetch(name: str, folder: Path | None) -> None:
    """Download the public data set NAME and check its files' checksums; data/README.md lists the sets."""
    from headdiv.companion import paths
    from headdiv.companion.data import download, public_sets

    where = download.fetch(name, folder or paths.raw())
    fetched = public_sets.load_registry()[name]
    for split, entry in fetched.splits.items():
        say(f"{split}: {entry.count:,} examples in {', '.join(dict.fromkeys(entry.files.values()))}")
    say(f"{where} is complete. Licence: {fetched.licence}")


@cli.command()
@EXPERIMENT
@profile_option()
@JSON
def params(experiment: str, profile: str, as_json: bool) -> None:
    """Count the parameters of every variant, with the data's vocabulary, and compare them with the paper's."""
    from headdiv.companion.experiments.parameters import audit

    counts = audit(profile, experiment)
    if as_json:
        print_json(counts)
        return
    columns = ("parameters", "at_paper_sizes", "paper", "follows")
    named = ({key.replace("_", " "): row[key] for key in columns if row[key]} for row in counts.values())
    print_table([{"variant": variant} | row for variant, row in zip(counts, named, strict=True)], "keys")


@cli.command()
@click.argument("name", metavar="PAPER/TABLE")
@click.argument("paths", nargs=-1, type=PATH)
@profile_option()
def table(name: str, paths: tuple[Path, ...], profile: str) -> None:
    """Print a paper's table with ours beside it, or write it to each of PATHS (.csv, .md, .tex).

    A table of results has the name of its experiment (deacon/qa); deacon/sources is the composition of the
    language model's training text. What is printed is Markdown; LaTeX has the rules of booktabs.
    """
    from headdiv.companion.experiments.outdated import refuse_outdated
    from headdiv.companion.report.tables import experiment_of_table, table_data, write_table

    refuse_outdated(profile, experiment_of_table(name, profile))
    if paths:
        write_table(profile, name, *paths)
    else:
        say(table_data(profile, name).markdown())


@cli.command()
@click.argument("name")
@click.argument("paths", nargs=-1, required=True, type=PATH)
@profile_option()
@click.option("--option", "options", type=(str, str), multiple=True, metavar="KEY VALUE",
              help="Draw it otherwise: `limit` of the colours, 1 at full scale (deacon_figure6); `distance` of heads, "
              "cosine or l2 (mhr_figure6, mhr_figure7); `split`, training or validation "
              "(homeostasis_figure1 to 4).")  # fmt: skip
def figure(name: str, paths: tuple[Path, ...], profile: str, options: tuple[tuple[str, str], ...]) -> None:
    """Draw the figure NAME from stored results into each of PATHS (.png, .svg, .pdf).

    Beside those of a profile there is <paper>_pruning, drawn from what `headdiv importance` stores.
    """
    from headdiv.companion.experiments.outdated import refuse_outdated
    from headdiv.companion.experiments.profiles import Runs
    from headdiv.companion.report.figures import figure_entry, write_figure

    for experiment in figure_entry(name, profile).experiments_in(Runs(profile).experiments()):
        refuse_outdated(profile, experiment)
    write_figure(name, profile, *paths, **dict(options))


@cli.command()
@click.argument("paper")
@profile_option()
def draw(paper: str, profile: str) -> None:
    """Write all tables and figures of PAPER from stored results into results/<profile>."""
    from headdiv.companion.report.draw import draw_paper

    draw_paper(profile, paper)


@cli.command()
@profile_option()
@click.option("--baseline", default="baseline", show_default=True, help="The variant that others are compared with.")
@click.option("--figures", type=PATH, help="Draw each experiment's differences into this folder, too.")
def compare(profile: str, baseline: str, figures: Path | None) -> None:
    """Compare the variants of every stored experiment of the profile, your own too, with one of them.

    Differences are of the lowest validation loss and of the task's main score, ± half of a simultaneous 95 % interval.
    """
    from headdiv.companion.report.compare import as_text, write_figures

    say(as_text(profile, baseline))
    for path in write_figures(profile, figures, baseline) if figures else ():
        say(f"figure: {path}")


@cli.command()
@click.argument("folder", required=False, type=PATH)
@profile_option()
def report(folder: Path | None, profile: str) -> None:
    """Write the profile's report, notebooks, tables and figures, to FOLDER or results/<profile>/report."""
    from headdiv.companion.report.site.build import report_folder, write_report

    say(f"report: {write_report(profile, folder or report_folder(profile))}")


@cli.command()
@profile_option()
@click.option("--no-scores", is_flag=True, help="Leave the scores out: then the data are not read.")
@click.option("--write", is_flag=True, help="Put today's scores into the stored metrics.")
def check(profile: str, no_scores: bool, write: bool) -> None:
    """Check that the profile's stored runs have its settings, data and plugins, and score their outputs again.

    No model is needed, but the data's references are. A run that has learnt nothing is an error; what makes scores of
    texts doubtful is said: outputs far longer or shorter than references, unknown words, references that are not the
    same once they are tokenised and joined again.
    """
    from headdiv.companion.experiments.outdated import of_other_content, outdated
    from headdiv.companion.experiments.rescoring import rescore
    from headdiv.companion.experiments.results import doubts, failures

    if wrong := [*outdated(profile), *of_other_content(profile)]:
        raise HeaddivError("\n".join(wrong))
    runs = [] if no_scores else rescore(profile)
    differing = [(run.name, score, *values) for run in runs for score, values in run.differing.items()]
    if differing:
        print_table(differing, ["run", "score", "stored", "now"])
    if renewed := sum(run.renewed for run in runs):
        say(f"{renewed} scores of stored outputs are new or have another signature today, and the same value")
    if write:
        for run in runs:
            if run.differing or run.renewed:
                run.write()
    for sentence in doubts(profile):
        say(f"read with care: {sentence}")
    if wrong := failures(profile):
        raise HeaddivError("\n".join(wrong))
    if differing and not write:
        raise HeaddivError(f"{len(differing)} scores of stored outputs are others today; --write keeps today's")
    say("Every stored run is the profile's and has learnt: its loss fell, and validation beats frequencies alone.")


@cli.command()
@click.option("--paper", help="Of this paper alone.")
@click.option("--verdict", help="With this verdict alone, such as 'contradicted'.")
@click.option("--summary", is_flag=True, help="Count verdicts by paper, and say what each means.")
@click.option("-v", "--verbose", is_flag=True, help="Show every claim, and how it was worked out.")
@JSON
def claims(paper: str | None, verdict: str | None, summary: bool, verbose: bool, as_json: bool) -> None:
    """Print the papers' claims with their verdicts: recomputed, measured, or not run."""
    from headdiv.companion.experiments.claims import ledger, text

    rows = ledger.ledger(paper, verdict)
    if as_json:
        print_json(ledger.summary(rows) if summary else [row.record() for row in rows])
    else:
        say(text.summary_text(rows) if summary else text.as_text(rows, verbose))


@cli.command()
@click.argument("model")
@click.option("--text", type=PATH, required=True, help="One example a line.")
@click.option("--target", type=PATH, help="What an encoder-decoder writes, line for line; the text where left out.")
@click.option("--output", type=PATH, default="heads", show_default=True, help="Folder for table and drawings.")
@click.option("--lines", type=click.IntRange(1), default=1000, show_default=True, help="Examples that are read.")
@click.option("--batch", type=click.IntRange(1), default=16, show_default=True, help="Examples of a batch.")
@click.option("--length", type=click.IntRange(2), default=128, show_default=True, help="Tokens of an example.")
def heads(model: str, text: Path, target: Path | None, output: Path, lines: int, batch: int, length: int) -> None:
    """Measure the heads of MODEL, a name on the Hugging Face hub or a folder, over a text.

    Writes heads.csv, and a heat map by layer and head of each measure.
    """
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # without a network it logs each of its tries, twice
    from headdiv.companion.report.model_heads import measure_model, write_model_heads

    table = measure_model(model, text, target, batch, length, lines)
    path = write_model_heads(table, output)
    print_table(table.reset_index().to_dict("records"), "keys")
    say(f"{path}")


@cli.command()
@EXPERIMENT
@profile_option()
@click.option("--arm", help="This variant alone.")
def tune(experiment: str, profile: str, arm: str | None) -> None:
    """Tune an experiment's arms by validation loss, as its profile's section 'tune' says, and print what was tried.

    What is stored is not trained again. The experiment's runs then have each arm's choice.
    """
    from headdiv.companion.experiments import tuning
    from headdiv.companion.experiments.profiles import Runs
    from headdiv.companion.report.tuning import tuning_data

    arms = [tuning.tune(each).arm for each in Runs(profile).arms_of(experiment, arm)]
    (table,) = (data := tuning_data(profile, experiment)).tables.values()
    print_table(table[data.numbers["variant"].isin(arms)].to_dict("records"), "keys")


@cli.command(name="list")
@profile_option()
def list_names(profile: str) -> None:
    """Print the names that commands take: profiles, and a profile's experiments, variants, tables and figures.

    Methods and public data sets come last.
    """
    from headdiv.companion.data.public_sets import load_registry
    from headdiv.companion.experiments.profiles import Runs
    from headdiv.companion.report.draw import products
    from headdiv.methods import METHODS

    runs = Runs(profile)
    tables, figures = products(runs)
    say(f"profiles: {', '.join(sorted(path.stem for path in (paths.home() / 'config').glob('*.yaml')))}")
    for experiment in runs.experiments():
        say(f"{experiment}: {', '.join(dict.fromkeys(run.variant for run in runs.planned(experiment)))}")
    say(f"tables: {', '.join(name.replace('_', '/', 1) for name in tables)}")
    say(f"figures: {', '.join(figures)}")
    say(f"methods: {', '.join(METHODS)}")
    say(f"data sets: {', '.join(load_registry())}")


for command in COMMANDS:
    cli.add_command(command)


def main() -> None:
    """Entry point."""
    write_plainly()
    try:
        cli(prog_name="headdiv", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        if tracebacks:
            traceback.print_exc()
        _fail(*_in_words(error))


def _in_words(error: BaseException) -> tuple[str, int]:
    """What is said of an error, and the status that the process ends with."""
    match error:
        case HeaddivError():
            return str(error), 2
        case click.ClickException():
            return error.format_message(), error.exit_code
        case click.Abort() | KeyboardInterrupt():
            return "interrupted", 130
        case ModuleNotFoundError(name=str(name)) if not name.startswith("headdiv"):
            package = NEEDED.get(name.partition(".")[0], "headdiv[pipeline]")
            return f"{name} is not installed; this needs pip install '{package}'", 2
        case OSError(filename=filename) if error.strerror:
            return f"{filename}: {error.strerror}" if filename else f"{error.strerror} (while writing)", 2
    what = " ".join(str(error).split())
    return f"{type(error).__name__}, which was not expected: {what[:500]} (`headdiv --traceback …` shows where)", 1


def _fail(message: str, status: int) -> None:
    with contextlib.suppress(OSError):
        print(f"headdiv: {printable(message)}", file=sys.stderr, flush=True)
    try:
        sys.stdout.flush()
    except OSError:  # Python would try once more, and say so
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)


if __name__ == "__main__":
    main()
