"""What the papers report, as it is printed there."""

import pytest

from headdiv.config import ModelConfig
from headdiv.errors import ConfigError
from headdiv.methods import check_method
from headdiv.papers import FOLDER, load_paper, load_task

PAPERS = sorted(path.stem for path in FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_loads(name):
    paper = load_paper(name)
    assert paper.title
    assert paper.tasks
    for task in paper.tasks.values():
        assert task.variants
        for variant, row in task.variants.items():
            assert set(row.reported) <= set(task.columns), variant
            assert check_method(row.method, ModelConfig())["name"] == row.method["name"]


def test_table_3_of_deacon():
    task = load_task("deacon", "translation")
    assert task.table == "Table 3"
    printed = {name: tuple(row.reported.values()) for name, row in task.variants.items()}
    assert list(task.columns) == [
        "parameters",
        "training_loss",
        "validation_accuracy",
        "bleu",
        "parameters_of_base",
    ]
    assert all(list(row.reported) == list(task.columns) for row in task.variants.values())
    assert printed == {
        "baseline": (5370112, 0.8211, 68.63, 28.4, 100.00),
        "direct-8": (5373616, 0.8031, 69.75, 28.9, 100.07),
        "direct-3": (5127586, 0.9887, 68.30, 28.3, 95.48),
        "average-8": (4992688, 0.8256, 67.78, 28.1, 92.97),
        "average-3": (4984738, 1.1382, 63.70, 26.8, 92.82),
        "nonlinear-8": (5372800, 0.9916, 68.02, 28.2, 100.05),
        "nonlinear-3": (5125690, 0.8689, 67.68, 28.1, 95.45),
    }
    assert [row.label for row in task.variants.values()] == [
        "Baseline Transformer",
        "Direct-8",
        "Direct-3",
        "Average-8",
        "Average-3",
        "Non-Linear-8",
        "Non-Linear-3",
    ]


def test_every_share_of_base_in_table_3_follows_from_its_count():
    rows = load_task("deacon", "translation").variants
    base = rows["baseline"].reported["parameters"]
    wrong = [
        name
        for name, row in rows.items()
        if f"{100 * row.reported['parameters'] / base:.2f}" != f"{row.reported['parameters_of_base']:.2f}"
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_paper("decon"), "paper 'decon' is not known; did you mean 'deacon'?"),
        (lambda: load_paper("zzz"), f"paper 'zzz' is not known; known here: {', '.join(PAPERS)}"),
        (lambda: load_paper("../papers/deacon"), None),
        (
            lambda: load_task("deacon", "translate"),
            "task 'translate' of deacon is not known; did you mean 'translation'?",
        ),
        (lambda: load_task("deacon", ""), "task '' of deacon is not known; known here: translation"),
    ],
)
def test_what_is_not_there_is_named(call, message):
    with pytest.raises(ConfigError) as found:
        call()
    assert message is None or str(found.value) == message
