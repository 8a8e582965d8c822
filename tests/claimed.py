"""Claims by their place, and made-up metrics of runs as the papers have them: shared by tests."""

import reported

from headdiv.companion.experiments.claims.ledger import ledger
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.core.files import write_json
from headdiv.methods import check_method


def at(place, paper="deacon"):
    """The claim at this place."""
    (row,) = [row for row in ledger(paper) if row.place == place]
    return row


def translation(
    variant, seed=1, *, epochs=30, data="multi30k", examples=29000, share=1.0, method=None, device="a CPU", **values
):
    """Metrics of DEACON's translation as the paper has it, but for what is said otherwise; ``values``: scores."""
    task = task_of("deacon/translation")
    sizes = task.sizes.model | {key: values.pop(key) for key in ("d_model", "encoder_layers") if key in values}
    run = reported.metrics(variant, seed, epochs=epochs, data=data, **values)
    model = TASKS["translation"].Model(**sizes)
    run["config"] |= {
        "data": TASKS["translation"].Data(name=data, test="test_2016_flickr").model_dump(mode="json"),
        "model": model.model_dump(mode="json"),
        "method": check_method(task.variants[variant].method | (method or {}), model),
        "train": TrainConfig(epochs=epochs, share=share).model_dump(mode="json"),
    }
    run["data"]["train"]["examples"] = examples
    run["provenance"]["device"] = device
    return run


def store(home, *runs, profile="full"):
    for run in runs:
        path = home / "results" / profile / run["paper"] / run["task"] / run["variant"] / f"seed{run['seed']}"
        write_json(path / "metrics.json", run)
