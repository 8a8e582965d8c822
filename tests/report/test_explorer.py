"""What is found out about one head and one text: each number against a literal twin, each refusal by its sentence."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import randomise, small_config, untrained

from headdiv.analysis.masking import heads_of, masked_heads, masks_without
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import run_folder
from headdiv.companion.models.batching import END
from headdiv.companion.report.explorer_view import (
    MEASURES,
    View,
    available_runs,
    compare_components,
    components,
    masking,
    similarity,
    view_of,
)
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import DataError
from headdiv.methods.deacon import pca_layers
from headdiv.nn.records import record_heads

SOURCE = "The old dog sees a small cat."
seeds = st.integers(0, 2**31 - 1)


def log_probabilities(run, batch, dim=-1):
    with torch.no_grad():
        return (run.model(batch) @ run.model.output_weight.T).log_softmax(dim)


# ---- runs and views


def test_only_what_is_trained_here_is_a_run(finished):
    labels = [config.label for config in available_runs("tiny")]
    assert labels == ["deacon/translation baseline seed 1", "deacon/translation direct-8 seed 1"]
    assert [config.variant for config in available_runs("tiny", "deacon/translation", "direct-8", 1)] == ["direct-8"]
    (run_folder(Runs("tiny").configs()[0]) / "training.json").unlink()
    assert [config.variant for config in available_runs("tiny")] == ["direct-8"]


def test_a_view_is_of_a_head_that_there_is(run):
    view = view_of(run)
    assert (view.text, view.other, view.place, view.head) == (run.corpus.test.text[0][0], None, "cross 1", 1)
    assert view_of(run, SOURCE, "Der Hund", "encoder 1", 8).other == "Der Hund"
    with pytest.raises(DataError, match="no attention 'cross 2'; there are: encoder 1, decoder 1, cross 1"):
        view_of(run, place="cross 2")
    for head in (0, 9):
        with pytest.raises(DataError, match=f"cross 1 has the heads 1 to 8, found head {head}"):
            view_of(run, place="cross 1", head=head)


@pytest.mark.parametrize("task", ["summarisation", "qa", "lm", "mlm"])
def test_every_task_has_an_example_that_all_can_read(folder, task):
    run = untrained(small_config(task))
    for place in heads_of(run.model):
        view = view_of(run, place=place)
        assert "<|endoftext|>" not in view.text
        assert similarity(view).shape == (heads_of(run.model)[place],) * 2
        assert len(masking(view)) == 2


# ---- similarity


def test_similarity_is_the_mean_over_words(run):
    """`test_similarity` has twins of the measures; this is of the words alone, and of 1 − the distance."""
    view = View(run, SOURCE, "Der Hund", "cross 1", 1)
    with torch.no_grad(), record_heads(run.model) as records:
        run.model(view.batch)
    outputs, weights = records[2].outputs[1:3].double(), records[2].weights[0, :, 1:3].double()  # <s> is no word
    cosines = torch.cosine_similarity(outputs[:, :, None], outputs[:, None], dim=-1).mean(0)
    np.testing.assert_allclose(similarity(view), cosines, atol=1e-5)
    entropy = lambda p: -torch.special.xlogy(p, p).sum(-1) / np.log(2)  # noqa: E731
    p, q = weights[:, None], weights[None]
    js = (entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2).clamp(min=0).sqrt().mean(-1)
    np.testing.assert_allclose(similarity(view, "js"), 1 - js, atol=1e-4)
    for measure, (_, low) in MEASURES.items():
        similarities = similarity(view, measure)
        np.testing.assert_allclose(np.diag(similarities), 1, atol=1e-5)
        assert low - 1e-6 <= similarities.min() <= similarities.max() <= 1 + 1e-6


def test_a_text_without_words_has_no_similarity(run):
    with pytest.raises(DataError, match="encoder 1: no words that heads could be compared on"):
        similarity(View(run, "", "", "encoder 1", 1))


# ---- masking


def test_masking_a_head_of_a_translation(run):
    run = replace(run, model=randomise(run.model))
    view, task = View(run, SOURCE, None, "cross 1", 2), TASKS["translation"]
    batch = task.example_batch(run, SOURCE)
    assert batch.target_out[-1] == END
    expected = []
    for masks in ({}, masks_without(run.model, [("cross 1", 2)])):
        with masked_heads(run.model, masks):
            rows = log_probabilities(run, batch)
            log_p = [float(rows[i, word]) for i, word in enumerate(batch.target_out)]
            expected.append((task.apply(run, SOURCE), pytest.approx(sum(log_p) / len(log_p), abs=1e-5)))
    table = masking(view)
    assert list(table) == ["translation", "log-probability of all heads' translation (nats/token)"]
    assert list(table.itertuples(index=False, name=None)) == expected
    assert table.iloc[0, 1] != pytest.approx(table.iloc[1, 1], abs=1e-4)


def test_masking_a_head_of_a_question_answerer(folder):
    run = untrained(small_config("qa"))
    view, batch = view_of(run), view_of(run).batch
    table = masking(view)
    assert list(table) == ["answer", "log-probability of all heads' answer (nats/answer)"]
    assert table.iloc[0, 0] == TASKS["qa"].apply(run, view.text, view.other)
    log_p = log_probabilities(run, batch, 0)  # one passage: (L, 2)
    longest = run.config.decode.max_answer_words
    best = max(
        float(log_p[i, 0] + log_p[j, 1]) for i in range(len(log_p)) for j in range(i, min(len(log_p), i + longest))
    )
    assert table.iloc[0, 1] == pytest.approx(best, abs=1e-5)


def test_masking_a_head_of_a_language_model(folder):
    run = untrained(small_config("lm"))
    table = masking(view_of(run, "the dog"))
    assert list(table) == ["goes on", "loss on the text (nats/token)"]
    bpe = run.corpus.bpe
    tokens = [bpe.end, *bpe.encode_batch(["the dog"])[0]]
    batch = TASKS["lm"].example_batch(run, "the dog")
    rows = log_probabilities(run, batch)
    expected = -sum(float(rows[i, word]) for i, word in enumerate(tokens[1:])) / (len(tokens) - 1)
    assert table.iloc[0, 1] == pytest.approx(expected, abs=1e-5)
    assert table.iloc[0, 0] == TASKS["lm"].apply(run, "the dog")
    with pytest.raises(DataError, match="a text without anything to predict: expected one token at least"):
        masking(view_of(run, ""))


def test_masking_a_head_of_a_masked_model(folder):
    run = untrained(small_config("mlm"))
    table = masking(view_of(run, "the [MASK] dog"))
    assert list(table) == ["filled-in text", "log-probability of all heads' filled-in text (nats/masked token)"]
    assert table.iloc[0, 0] == TASKS["mlm"].apply(run, "the [MASK] dog")
    batch = TASKS["mlm"].example_batch(run, "the [MASK] dog")
    rows = log_probabilities(run, batch)
    (index,) = (batch.inputs == run.corpus.bpe.size).nonzero().flatten().tolist()
    assert table.iloc[0, 1] == pytest.approx(float(rows[index].max()), abs=1e-5)
    with pytest.raises(DataError, match=r"expected one \[MASK\] at least"):
        masking(view_of(run, "the dog"))


# ---- components


def literal_rows(run, layer):
    """Inputs of a direct PCA layer over the validation split, after its batch normalisation: (N, H)."""
    rows, spec = [], layer.spec
    handle = layer.norm.register_forward_hook(lambda _, __, x: rows.extend(x.view(-1, spec.heads, spec.d_head)))
    with torch.no_grad():
        for batch in TASKS["translation"].held_out(run.corpus, "valid", run.config):
            run.model(batch)
    handle.remove()
    return torch.stack([row[:, j] for row in rows for j in range(spec.d_head)]).double().numpy()


@pytest.mark.parametrize("place", ["encoder 1", "cross 1"])
def test_components_are_those_of_the_validation_split(finished, place):
    three = {"name": "deacon", "architecture": "direct", "m": 3}
    run = untrained(finished.config("three", define={"three": three}, variants=["three"]))
    randomise(run.model)
    layer = next(layer for layer in pca_layers(run.model).values() if f"{layer.spec.kind} 1" == place)
    with torch.no_grad():
        layer.w *= torch.tensor([2.0, 1.0, 0.5])  # lengths do not matter
    layer_components = components(view_of(run, place=place))
    C = np.cov(literal_rows(run, layer).T, bias=True)
    values, vectors = np.linalg.eigh(C)
    values, vectors = values[::-1], vectors[:, ::-1]
    w = layer.w.detach().double().numpy()
    cosines = [[abs(column @ vector) / np.linalg.norm(column) for vector in vectors.T[:3]] for column in w.T]
    np.testing.assert_allclose(layer_components.cosines, cosines, atol=1e-4)
    assert layer_components.inputs == 8
    assert layer_components.best == pytest.approx(values[:3].sum() / values.sum(), abs=1e-5)
    assert layer_components.kept == pytest.approx(literal_share(C, w), abs=1e-5)


def literal_share(C, w):
    """Of Gram and Schmidt, column by column."""
    basis = []
    for column in w.T:
        residual = column - sum((b @ column * b for b in basis), 0 * column)
        residual = residual - sum((b @ residual * b for b in basis), 0 * residual)
        if np.linalg.norm(residual) > 1e-9 * max(np.linalg.norm(column), 1e-300):
            basis.append(residual / np.linalg.norm(residual))
    return sum(b @ C @ b for b in basis) / np.trace(C)


@given(seed=seeds, k=st.integers(1, 6), m=st.integers(1, 6), dependent=st.booleans())
def test_the_share_of_variance(seed, k, m, dependent):
    m, rng = min(m, k), np.random.default_rng(seed)
    root, w = rng.normal(size=(k, k)), rng.normal(size=(k, m))
    if dependent and m > 1:
        w[:, 1] = -3 * w[:, 0]
    C = root @ root.T
    shares = compare_components(torch.from_numpy(w), torch.from_numpy(C))
    assert shares.kept == pytest.approx(literal_share(C, w), abs=1e-8)
    assert shares.kept <= shares.best + 1e-9
    if m == k and not dependent:
        assert shares.kept == pytest.approx(1)


def test_inputs_that_do_not_vary_are_refused(run):
    with torch.no_grad():
        for layer in pca_layers(run.model).values():
            layer.norm.weight.zero_()
            layer.norm.bias.zero_()
    with pytest.raises(DataError, match="decoder 1: the inputs of the PCA layer do not vary"):
        components(view_of(run, place="decoder 1"))
