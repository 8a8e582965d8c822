"""Small trained models that lie in ``data/models``, so that heads can be looked at before anything is trained.

They are the profile ``explorer``'s: `config/explorer.yaml` has their settings, `data/README.md` their data and licence.
A model is stored in half precision, with the covariances of its PCA layers' inputs over the validation split. Of the
corpus only the words' pieces are there; the examples are the project's own.
"""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from headdiv.companion import paths, runtime
from headdiv.companion.data.corpora.seq2seq import Corpus, TextSplit
from headdiv.companion.data.tokenization.subwords import Subwords
from headdiv.companion.data.tokenization.vocabulary import Vocabulary
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import build_model, choose_device
from headdiv.companion.models.batching import Pairs
from headdiv.companion.tasks.base import Run, vocabulary_of
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core.files import read_json, write_json

PROFILE = "explorer"
CORPUS = "corpus.json"
COVARIANCE = "covariance of "  # and a place: a tensor's name


def model_file(variant: str) -> Path:
    """Where a variant's model lies."""
    return paths.shipped() / "data" / "models" / f"{variant}.safetensors"


def is_shipped(config: RunConfig) -> bool:
    """Whether this run's model is among them."""
    return config.hash in {shipped.hash for shipped in _configs()} and model_file(config.variant).is_file()


def shipped_runs() -> list[Run]:
    """Both models, the Transformer first."""
    return [load_shipped(config) for config in _configs()]


def _configs() -> list[RunConfig]:
    """The runs of the package's own profile, whatever the project's folder has."""
    return Runs(str(paths.shipped() / "config" / f"{PROFILE}.yaml")).configs()


def ship(run: Run, covariances: dict[str, Tensor], folder: Path) -> None:
    """Write a run's model and what it needs of its corpus; ``covariances`` of PCA layers' inputs, by place: (k, k)."""
    folder.mkdir(parents=True, exist_ok=True)
    distinct = dict([*run.model.named_parameters(), *run.model.named_buffers()])  # tied parameters by one name
    state = {name: tensor.half() for name, tensor in run.model.state_dict().items() if name in distinct}
    state |= {f"{COVARIANCE}{place}": C.float() for place, C in covariances.items()}
    save_file(state, folder / f"{run.config.variant}.safetensors")
    write_json(folder / CORPUS, {"words": run.corpus.source.words, **run.corpus.subwords.content()})


def load_shipped(config: RunConfig) -> Run:
    """A shipped model as a run, whose corpus has no training and validation text."""
    path = model_file(config.variant)
    corpus_file = path.with_name(CORPUS)
    words, pieces = Vocabulary(read_json(corpus_file)["words"]), Subwords.load(corpus_file)
    empty = TextSplit([], Pairs([], []))
    sizes = {"source": len(words), "target": len(words)}
    corpus = Corpus(words, words, empty, empty, TextSplit(EXAMPLES, Pairs([], [])), {"vocabulary": sizes}, pieces)
    runtime.configure(config.threads)
    model, _ = build_model(config, vocabulary_of(corpus), choose_device())
    state = load_file(path)
    covariances = {name: state.pop(name) for name in list(state) if name.startswith(COVARIANCE)}
    model.load_state_dict(state, strict=False)  # tied parameters are there once
    record = {"covariances": {name.removeprefix(COVARIANCE): C.double() for name, C in covariances.items()}}
    return Run(config, path.parent, corpus, model.eval(), record)


EXAMPLES = [  # in the style of captions, which the models have learnt from
    ("A brown dog runs through the snow.", "Ein brauner Hund rennt durch den Schnee."),
    ("Two women sit on a bench and read a book.", "Zwei Frauen sitzen auf einer Bank und lesen ein Buch."),
    ("A man in a red shirt plays the guitar.", "Ein Mann in einem roten Hemd spielt Gitarre."),
    ("The children play football on a green field.", "Die Kinder spielen Fußball auf einer grünen Wiese."),
    ("A girl with a hat is eating an ice cream.", "Ein Mädchen mit einem Hut isst ein Eis."),
    ("Three people wait for a bus in front of a shop.", "Drei Personen warten vor einem Geschäft auf einen Bus."),
    ("An old man is fishing from a small boat.", "Ein alter Mann angelt von einem kleinen Boot aus."),
    ("A black cat sleeps next to a white dog.", "Eine schwarze Katze schläft neben einem weißen Hund."),
    ("A woman takes a photo of a man who is climbing.", "Eine Frau fotografiert einen Mann, der klettert."),
    ("Several workers repair the roof of a house.", "Mehrere Arbeiter reparieren das Dach eines Hauses."),
]
