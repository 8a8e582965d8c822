# data → run → table, figure → companion, report.
# config/<profile>.yaml says which runs there are and with what settings; it is checked while this file is read.
#     snakemake reproduce-all --config profile=multi30k
# The folder work/ (checkpoints, trained models) is not Snakemake's: a run that is there is never trained twice.
import sys
from glob import glob
from pathlib import Path

from headdiv.core.errors import HeaddivError
from headdiv.report.pipeline import Plan
from snakemake.exceptions import WorkflowError

try:
    PLAN = Plan(config.get("profile", "quick"))
except HeaddivError as error:
    raise WorkflowError(str(error)) from None

RESULTS = f"results/{PLAN.name}"
LOGS = f"logs/{PLAN.name}"
# The ledger in the report asks the stored runs of every profile.
OTHERS = [
    path
    for path in glob("results/*/*/*/*/seed*/metrics.json")
    if not path.startswith(f"{RESULTS}/")
]
# Rules use the Python that runs Snakemake, whether or not its environment is activated.
shell.prefix(f"export PATH='{Path(sys.executable).parent}':$PATH; ")


# `conda:` names the environment as an input of each rule; Snakemake runs in that environment or in .venv and makes none.


wildcard_constraints:
    paper="[a-z0-9]+",
    task="[a-z0-9]+",
    table="[a-z0-9]+",
    variant="[A-Za-z0-9-]+",
    seed="[0-9]+",
    figure="[a-z0-9_]+",


localrules:
    tables,
    figures,


rule:
    name:
        "reproduce-all"
    default_target: True
    input:
        f"{RESULTS}/report/index.html",


rule tables:
    input:
        expand(f"{RESULTS}/tables/{{table}}.{{kind}}", table=PLAN.tables, kind=["csv", "md"]),


rule figures:
    input:
        expand(f"{RESULTS}/figures/{{figure}}.{{kind}}", figure=PLAN.figures, kind=["png", "svg"]),


# A folder's name says all that decides its content, so no parameter may make this job run again: Snakemake does not
# compare those that depend on `output`. (Run again it would be alone, for `ancient` below hides it from all others.)
rule data:
    output:
        "data/prepared/{corpus}/corpus.json",
    log:
        f"{LOGS}/data/{{corpus}}.log",
    conda:
        "environment.yml"
    params:
        experiment=lambda w, output: PLAN.experiment_of_corpus(w.corpus),
        profile=lambda w, output: PLAN.profile,
    shell:
        "python -m headdiv --log {log:q} prepare {params.experiment} --profile {params.profile:q}"


# What decides a run is its configuration and the notebook's code, not the age of files: prose may change freely.
rule run:
    input:
        data=ancient(lambda w: PLAN.corpus(f"{w.paper}/{w.task}")),
        notebook=ancient("notebooks/runs/{paper}_{task}.ipynb"),
    output:
        metrics=f"{RESULTS}/{{paper}}/{{task}}/{{variant}}/seed{{seed}}/metrics.json",
        notebook=f"{RESULTS}/{{paper}}/{{task}}/{{variant}}/seed{{seed}}/run.ipynb",
    log:
        f"{LOGS}/{{paper}}/{{task}}/{{variant}}/seed{{seed}}/run.log",
    conda:
        "environment.yml"
    threads: PLAN.threads
    params:
        config=lambda w: PLAN.decisive(f"{w.paper}/{w.task}", w.variant, int(w.seed)),
        code=lambda w: PLAN.notebook_code(f"notebooks/runs/{w.paper}_{w.task}.ipynb"),
        parameters=lambda w: PLAN.parameters(variant=w.variant, seed=int(w.seed)),
        workdir=f"{LOGS}/{{paper}}/{{task}}/{{variant}}/seed{{seed}}",
    shell:
        "python -m headdiv --log {log:q} notebook {input.notebook:q} {output.notebook:q}"
        " --parameters {params.parameters:q} --scratch {params.workdir:q}"


rule table:
    input:
        lambda w: PLAN.metrics(PLAN.tables[f"{w.paper}_{w.table}"]),
    output:
        csv=f"{RESULTS}/tables/{{paper}}_{{table}}.csv",
        markdown=f"{RESULTS}/tables/{{paper}}_{{table}}.md",
    log:
        f"{LOGS}/tables/{{paper}}_{{table}}.log",
    conda:
        "environment.yml"
    params:
        profile=PLAN.profile,
    shell:
        "python -m headdiv --log {log:q} table {wildcards.paper}/{wildcards.table} {output.csv:q} {output.markdown:q}"
        " --profile {params.profile:q}"


rule figure:
    input:
        lambda w: PLAN.figure_metrics(w.figure),
    output:
        png=f"{RESULTS}/figures/{{figure}}.png",
        svg=f"{RESULTS}/figures/{{figure}}.svg",
    log:
        f"{LOGS}/figures/{{figure}}.log",
    conda:
        "environment.yml"
    params:
        profile=PLAN.profile,
    shell:
        "python -m headdiv --log {log:q} figure {wildcards.figure} {output.png:q} {output.svg:q}"
        " --profile {params.profile:q}"


# One for each paper, and the explorer's, of the profile's first trained run.
rule companion:
    input:
        notebook="notebooks/{paper}.ipynb",
        tables=rules.tables.input,
        figures=rules.figures.input,
    output:
        f"{RESULTS}/companions/{{paper}}.html",
    log:
        f"{LOGS}/companions/{{paper}}.log",
    conda:
        "environment.yml"
    params:
        parameters=lambda w: PLAN.parameters(),
        workdir=f"{LOGS}/companions",
    shell:
        "python -m headdiv --log {log:q} notebook {input.notebook:q} {output:q}"
        " --parameters {params.parameters:q} --scratch {params.workdir:q}"


rule report:
    input:
        tables=rules.tables.input,
        figures=rules.figures.input,
        companions=expand(f"{RESULTS}/companions/{{paper}}.html", paper=[*PLAN.papers, "explore"]),
        others=OTHERS,
    output:
        f"{RESULTS}/report/index.html",
    log:
        f"{LOGS}/report.log",
    conda:
        "environment.yml"
    params:
        folder=lambda w, output: Path(output[0]).parent,
        profile=PLAN.profile,
    shell:
        "python -m headdiv --log {log:q} report {params.folder:q} --profile {params.profile:q}"
