"""Models in other libraries' formats: their greedy outputs are ours."""

import resource

import numpy as np
import pytest
import torch

from headdiv.companion.experiments.export import export
from headdiv.companion.experiments.running import build_model
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import Run, vocabulary_of
from headdiv.core.errors import ConfigError, DataError, StorageError
from headdiv.nn.decoding import translate
from headdiv.nn.sizes import DecodeConfig

WORDS = 8  # of each output, END included
# What changes training alone.
RESTING = [
    {"name": "drop-head", "start": 0.5},
    {"name": "homeostasis", "attention": "smart", "block": "dropout"},
    {"name": "homeostasis", "attention": "kwta", "s_att": 0.5, "kwta_evaluation": "inactive"},
]
LINEAR = {"name": "deacon", "architecture": "average", "m": 4}


def fresh_run(project, method, **sections):
    """A run whose model was not trained: its outputs are as good a test, and all different."""
    config = project.config("tried", variants=["tried"], define={"tried": method}, **sections)
    corpus = TASKS[config.kind].load(config.data)
    model = build_model(config, vocabulary_of(corpus))[0]
    torch.manual_seed(1)
    for name, value in model.state_dict().items():  # biases and running statistics are what a mistake would lose
        if name.endswith(("bias", "running_mean")):
            value.normal_(std=0.5)
    return Run(config, project.home / "none", corpus, model.eval(), {})


def greedy(run):
    sources = run.corpus.test.pairs.source
    config = DecodeConfig(beam=1, max_length_factor=0, max_length_offset=WORDS)
    outputs = translate(run.model, sources, config)
    assert len({tuple(output) for output in outputs}) > 1
    return sources, outputs


@pytest.mark.parametrize("quantization", [None, "int8"])
@pytest.mark.parametrize("method", [{"name": "baseline"}, LINEAR], ids=["baseline", "average"])
def test_ctranslate2_writes_the_same_words(project, method, quantization):
    ctranslate2 = pytest.importorskip("ctranslate2")
    run = fresh_run(project, method)
    sources, outputs = greedy(run)
    folder = export(run, project.home / "exported", "ctranslate2", quantization)
    translator = ctranslate2.Translator(str(folder), compute_type=quantization or "float32", intra_threads=1)
    words = [run.corpus.source.decode(source) for source in sources]
    found = translator.translate_batch(words, beam_size=1, max_decoding_length=WORDS - 1)
    same = [result.hypotheses[0] == run.corpus.target.decode(own) for result, own in zip(found, outputs, strict=True)]
    assert all(same) or (quantization and np.mean(same) > 0.5)


@pytest.mark.parametrize("method", [{"name": "baseline"}, LINEAR, *RESTING], ids=str)
def test_marian_writes_the_same_words(project, method):
    transformers = pytest.importorskip("transformers")
    run = fresh_run(project, method)
    sources, outputs = greedy(run)
    model = transformers.MarianMTModel.from_pretrained(export(run, project.home / "exported", "huggingface"))
    for source, output in zip(sources, outputs, strict=True):
        words = torch.tensor([[*source.tolist(), 3]])
        (found,) = model.generate(words, num_beams=1, do_sample=False, max_length=WORDS + 1).tolist()
        assert found[1 : len(output) + 1] == output
        assert found[len(output) + 1] == 3  # END


def test_marian_searches_as_the_run_does(project):
    transformers = pytest.importorskip("transformers")
    decode = {"beam": 1, "length_penalty": 0.7, "max_length_factor": 0, "max_length_offset": 30}
    for beam in (3, 1):
        run = fresh_run(project, {"name": "baseline"}, decode=decode | {"beam": beam})
        model = transformers.MarianMTModel.from_pretrained(export(run, project.home / "exported", "huggingface"))
        search = model.generation_config
        assert (search.num_beams, search.length_penalty, search.max_length) == (beam, 0.7, 1 + 30)
    sources = run.corpus.test.pairs.source
    outputs = translate(run.model, sources, run.config.decode)
    assert max(map(len, outputs)) > 20  # transformers' own limit
    for source, output in zip(sources, outputs, strict=True):
        (found,) = model.generate(torch.tensor([[*source.tolist(), 3]])).tolist()
        assert found[1 : len(output) + 1] == output


def test_what_is_not_plain_attention_is_refused(project):
    for method, sentence in (
        ({"name": "deacon", "architecture": "nonlinear", "m": 8}, "its encoder 1 attention is not plain"),
        ({"name": "homeostasis", "attention": "kwta", "s_att": 0.5}, "its encoder 1 attention is not plain"),
        ({"name": "homeostasis", "attention": "smart", "smart_evaluation": "expectation"}, "its encoder 1 attention"),
        ({"name": "homeostasis", "block": "kwta", "s_bo": 0.5}, "what follows encoder 1 changes its layer's output"),
        ({"name": "moh"}, "its encoder 1 attention is not plain"),
    ):
        with pytest.raises(ConfigError, match=f"tried seed 1 cannot be exported: {sentence}"):
            export(fresh_run(project, method), project.home / "exported", "ctranslate2")


@pytest.mark.parametrize(
    ("to", "quantization", "message"),
    [
        ("ctranslate2", "int4", "--quantization: expected one of int8, .*, float32, found 'int4'"),
        ("huggingface", "int8", "--quantization int8: is CTranslate2's; expected none with --to huggingface"),
    ],
)
def test_a_quantization_that_the_format_lacks_is_refused_and_nothing_written(project, to, quantization, message):
    pytest.importorskip("ctranslate2")
    with pytest.raises(ConfigError, match=message):
        export(fresh_run(project, {"name": "baseline"}), project.home / "exported", to, quantization)
    assert not (project.home / "exported").exists()


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(("to", "package"), [("ctranslate2", "ctranslate2"), ("huggingface", "transformers")])
def test_an_export_replaces_an_export_whole_or_not_at_all(project, to, package):
    pytest.importorskip(package)
    run, folder = fresh_run(project, {"name": "baseline"}), project.home / "exported"
    export(run, folder, to)
    before = content(folder)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))  # as a full disk, for any file of the export
    try:
        with pytest.raises(StorageError, match=f"^{folder}: cannot be written \\(File too large\\)$"):
            export(run, folder, to)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert content(folder) == before
    assert not list(project.home.glob(".exported*"))
    export(run, folder, to)
    assert content(folder).keys() == before.keys()


def test_a_folder_that_is_no_export_is_left_alone(project):
    run, folder = fresh_run(project, {"name": "baseline"}), project.home / "mine"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "vocab.json", "target_vocab.json", "tokenizer.json"):
        (folder / name).write_text("mine")
    for there in (folder, folder / "config.json"):
        with pytest.raises(DataError, match=f"^{there}: holds something that is no export; expected an empty folder"):
            export(run, there, "huggingface")
    assert set(content(folder).values()) == {b"mine"}
