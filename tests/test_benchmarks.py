"""The benchmarks run, and what they compare computes the same."""

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch

from headdiv.companion.experiments.running import build_model
from headdiv.companion.models.decoding import translate
from headdiv.companion.models.sizes import DecodeConfig
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import vocabulary_of

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The scripts' own folder, as where they are started."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.usefixtures("project")
def test_speed_prints_medians(monkeypatch, capsys):
    pytest.importorskip("ctranslate2")
    monkeypatch.setattr(sys, "argv", ["speed.py", "--json", "--profile", "tiny", "--rounds", "1"])
    monkeypatch.setattr("timing.WARM_UP", 0)
    runpy.run_path(str(BENCHMARKS / "speed.py"), run_name="__main__")
    medians = json.loads(capsys.readouterr().out)
    keys = {"deacon_step_over_baseline", "bf16_over_fp32", "gemm_share", "decode_over_ctranslate2"}
    assert keys < medians.keys()
    assert all(median > 0 for median in medians.values())


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_of_ctranslate2_writes_the_same_words(project, tied):
    ctranslate2 = pytest.importorskip("ctranslate2")
    from ctranslate2_model import convert

    config = project.config(**({"data": {"joint_vocabulary": True}, "model": {"tied": "all"}} if tied else {}))
    corpus = TASKS["translation"].load(config.data)
    model = build_model(config, vocabulary_of(corpus))[0].eval()
    torch.manual_seed(1)
    for name, value in model.state_dict().items():  # else it repeats the word that it reads
        if name.endswith("bias"):
            value.normal_(std=0.5)
    folder = convert(model, config.model.activation, corpus, project.home / "converted")
    sources = corpus.test.pairs.source
    ours = translate(model, sources, DecodeConfig(beam=1, max_length_factor=0, max_length_offset=8))
    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    words = [corpus.source.decode(source) for source in sources]
    results = translator.translate_batch(words, beam_size=1, max_decoding_length=7)
    assert [result.hypotheses[0] for result in results] == [corpus.target.decode(output) for output in ours]
    assert len(set(map(tuple, ours))) > 1
