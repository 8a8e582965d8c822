# run → tables and figures → companion, report.
# config/<profile>.yaml says which runs there are and with what settings; it is checked before anything starts.
#     snakemake reproduce-all --config profile=multi30k
# The folder work/ (checkpoints, trained models) is not Snakemake's: a run that is there is never trained twice.
import sys
from pathlib import Path

from headdiv.core.errors import HeaddivError
from headdiv.core.settings import check
from headdiv.companion import pipeline
from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.0")

try:
    CONFIG = check(pipeline.PipelineConfig, config, ("--config",))
    PLAN = pipeline.Plan(CONFIG.profile)
except HeaddivError as error:
    raise WorkflowError(str(error)) from None

RESULTS = f"results/{PLAN.name}"
LOGS = f"logs/{PLAN.name}"
GPU = PLAN.gpu if CONFIG.gpu is None else CONFIG.gpu
RUN = f"{RESULTS}/{{paper}}/{{task}}/{{variant}}/seed{{seed}}"
# Rules use the Python that runs Snakemake, whether or not its environment is activated.
shell.prefix(f"export PATH='{Path(sys.executable).parent}':$PATH; ")
# Output goes to a log, where bars would be many lines.
PAPERMILL = (
    "HEADDIV_PROGRESS=plain papermill {input.notebook:q} {output.notebook:q}"
    " --kernel python3 --parameters_yaml {params.parameters:q}"
    " --no-progress-bar --stdout-file - --stderr-file - > {log:q} 2>&1"
)
ON_GPU = "if [ {resources.gpu} != 0 ]; then export HEADDIV_DEVICE=${{HEADDIV_DEVICE:-cuda}}; fi; "


# `conda:` names the environment as an input of each rule; Snakemake runs in that environment or in .venv and makes none.


wildcard_constraints:
    paper="[a-z0-9]+",
    task="[a-z0-9]+",
    variant="[A-Za-z0-9-]+",
    seed="[0-9]+",


# A cluster has no use for jobs of seconds.
localrules:
    tables,
    figures,
    report,


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
        expand(f"{RESULTS}/figures/{{figure}}.svg", figure=PLAN.figures),


# The settings of a variant, where the profile tunes it, before its runs. What has been trained is stored beside the
# choice and not trained again.
rule tune:
    output:
        f"{RESULTS}/{{paper}}/{{task}}/tune/{{variant}}/choice.json",
    log:
        f"{LOGS}/{{paper}}/{{task}}/tune/{{variant}}.log",
    conda:
        "environment.yml"
    threads: PLAN.threads
    resources:
        gpu=GPU,
    params:
        decisive=lambda w: PLAN.tuned[f"{w.paper}/{w.task}"][w.variant],
        profile=PLAN.profile,
    shell:
        f"{ON_GPU}python -m headdiv tune {{wildcards.paper}}/{{wildcards.task}} --arm {{wildcards.variant}}"
        " --profile {params.profile:q} > {log:q} 2>&1"


# What decides a run is its configuration and the notebook's code, not the age of files: prose may change freely. Its
# corpus is no input either: where that is not there yet, a clone's stored runs would be made again with the missing
# ones. The first run that needs it prepares it, and others wait for that.
# Not `update(…)`, which would keep an earlier run's files until the new one has succeeded: if it fails, Snakemake 9.27
# takes what it restored for done.
rule run:
    input:
        notebook=ancient(lambda w: pipeline.run_notebook(f"{w.paper}/{w.task}")),
        choice=ancient(lambda w: PLAN.choices([f"{w.paper}/{w.task}"], w.variant)),
    output:
        metrics=f"{RUN}/metrics.json",
        outputs=f"{RUN}/outputs.json.xz",
        notebook=f"{RUN}/run.ipynb",
    log:
        f"{LOGS}/{{paper}}/{{task}}/{{variant}}/seed{{seed}}/run.log",
    conda:
        "environment.yml"
    threads: PLAN.threads
    resources:
        gpu=GPU,
    params:
        config=lambda w: PLAN.runs[f"{w.paper}/{w.task}"][w.variant, int(w.seed)],
        code=lambda w: pipeline.notebook_code(pipeline.run_notebook(f"{w.paper}/{w.task}")),
        parameters=lambda w: PLAN.parameters(
            experiment=f"{w.paper}/{w.task}", variant=w.variant, seed=int(w.seed)
        ),
    shell:
        f"{ON_GPU}{PAPERMILL}"


# How much each head of a run matters, and how many can be masked, where the profile's `pruning` asks for it: by the
# validation loss alone. It needs the trained model, which the run has left in work/: metrics that are scored anew do not
# ask for it again.
rule importance:
    input:
        ancient(f"{RUN}/metrics.json"),
    output:
        f"{RUN}/importance.json",
    log:
        f"{LOGS}/{{paper}}/{{task}}/{{variant}}/seed{{seed}}/importance.log",
    conda:
        "environment.yml"
    threads: PLAN.threads
    resources:
        gpu=GPU,
    params:
        config=lambda w: PLAN.runs[f"{w.paper}/{w.task}"][w.variant, int(w.seed)],
        steps=lambda w: PLAN.pruned[f"{w.paper}/{w.task}"],  # read from the profile; another number makes it anew
        profile=PLAN.profile,
    shell:
        f"{ON_GPU}python -m headdiv importance {{wildcards.paper}}/{{wildcards.task}} {{wildcards.variant}}"
        " --seed {wildcards.seed} --profile {params.profile:q} > {log:q} 2>&1"


# All tables and figures of a paper in one process, which takes longer to begin than to draw one.
for paper in PLAN.papers:

    rule:
        name:
            f"draw_{paper}"
        input:
            PLAN.drawn_from(paper),
        output:
            PLAN.drawn(paper),
        log:
            f"{LOGS}/draw/{paper}.log",
        localrule: True
        conda:
            "environment.yml"
        params:
            paper=paper,
            content=PLAN.papers[paper],
            profile=PLAN.profile,
        shell:
            "python -m headdiv draw {params.paper} --profile {params.profile:q} > {log:q} 2>&1"


# One for each paper, from its own tables and figures; the explorer's, of the profile's first trained run; and those
# that the profile names.
rule companion:
    input:
        made=lambda w: PLAN.companion(w.paper),
        notebook="notebooks/{paper}.ipynb",
    output:
        notebook=f"{RESULTS}/companions/{{paper}}.ipynb",
    log:
        f"{LOGS}/companions/{{paper}}.log",
    wildcard_constraints:
        paper="[a-z0-9_]+",  # any of the profile's notebooks too
    conda:
        "environment.yml"
    params:
        parameters=lambda w: PLAN.parameters(),
    shell:
        PAPERMILL


rule report:
    input:
        tables=rules.tables.input,
        figures=rules.figures.input,
        companions=expand(
            f"{RESULTS}/companions/{{paper}}.ipynb", paper=[*PLAN.papers, *PLAN.notebooks]
        ),
    output:
        f"{RESULTS}/report/index.html",
    log:
        f"{LOGS}/report.log",
    conda:
        "environment.yml"
    params:
        profile=PLAN.profile,
    shell:
        "python -m headdiv report --profile {params.profile:q} > {log:q} 2>&1"


onstart:
    pipeline.end_jobs_with_snakemake()


onsuccess:
    if Path(RESULTS, "report/index.html").is_file():
        shell("python -m headdiv compare --profile {PLAN.profile:q}")
