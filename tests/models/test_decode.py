"""Search against literal searches, cached decoding against decoding without a cache."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headdiv.companion.models import decoding as decode
from headdiv.companion.models.batching import BEGIN, END, Pairs, make_batch
from headdiv.companion.models.decoding import beam_search, translate
from headdiv.companion.models.sizes import DecodeConfig, ModelConfig
from headdiv.companion.models.transformer import Transformer, initialise
from headdiv.methods import make_method
from headdiv.nn.attention import AttentionModule
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.packing import pad_rows

METHODS = {"baseline": {"name": "baseline"}, "direct-8": {"name": "deacon", "architecture": "direct", "m": 8}}
seeds = st.integers(0, 2**31 - 1)

# ---- search alone, over a table of random words

V = 6
FREE = [1, 4, 5]  # all but PAD, BEGIN and END


def log_probabilities(seed, sentence, prefix, sharpness=1.5):
    generator = np.random.default_rng([seed, sentence, *prefix])
    logits = torch.from_numpy(sharpness * generator.standard_normal(V)).float()
    return logits.log_softmax(-1)


class Table:
    """Lines of a search whose words are drawn from (seed, sentence, all words before) alone."""

    def __init__(self, seed, sentences, width):
        self.width = width
        self.seed, self.lines, self.steps = seed, [(s, ()) for s in sentences for _ in range(width)], 0

    def step(self, words):
        assert len(words) == len(self.lines)
        self.lines = [(s, (*prefix, w)) for (s, prefix), w in zip(self.lines, words.tolist(), strict=True)]
        self.steps += 1
        assert all(len(prefix) == self.steps for _, prefix in self.lines)
        return torch.stack([log_probabilities(self.seed, s, prefix[1:]) + 3.0 for s, prefix in self.lines])

    def select(self, lines):
        self.lines = [self.lines[i] for i in lines.flatten().tolist()]
        numbers = [s for s, _ in self.lines]
        assert numbers == sorted(numbers)
        assert all(numbers.count(s) == self.width for s in numbers)


def searched(lines, limits, width, alpha):
    return beam_search(lines.step, lines.select, torch.as_tensor(limits), width, alpha)


def search(seed, sentences, limits, width, alpha):
    return searched(Table(seed, sentences, width), limits, width, alpha)


def literal_greedy(seed, sentence, limit):
    output = ()
    while len(output) + 1 < limit:
        log_p = log_probabilities(seed, sentence, output)
        word = max([END, *FREE], key=lambda w: float(log_p[w]))
        if word == END:
            break
        output = (*output, word)
    return list(output)


def literal_beam(seed, sentence, limit, width, alpha):
    """To the limit without ever stopping early."""
    alive, ended = [((), 0.0)], []
    for length in range(1, limit + 1):
        longer = []
        for prefix, score in alive:
            log_p = log_probabilities(seed, sentence, prefix).tolist()
            ended.append(((score + log_p[END]) / length**alpha, prefix))
            longer += [((*prefix, w), score + log_p[w]) for w in FREE]
        alive = sorted(longer, key=lambda item: -item[1])[:width]
    return list(max(ended)[1])


many_limits = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(seed=seeds, limits=many_limits)
def test_greedy_takes_the_likeliest_word_each_time(seed, limits):
    outputs = search(seed, range(len(limits)), limits, 1, 0.6)
    assert outputs == [literal_greedy(seed, s, limit) for s, limit in enumerate(limits)]


@given(seed=seeds, limits=many_limits, width=st.integers(2, 6), alpha=st.sampled_from([0.0, 0.6, 1.0]))
def test_beam_is_the_literal_one_that_never_stops_early(seed, limits, width, alpha):
    outputs = search(seed, range(len(limits)), limits, width, alpha)
    assert outputs == [literal_beam(seed, s, limit, width, alpha) for s, limit in enumerate(limits)]


class Fixed(Table):
    """The same log-probabilities after every word."""

    def __init__(self, log_p, sentences, width):
        super().__init__(0, range(sentences), width)
        self.log_p = torch.full((V,), -torch.inf)
        for word, value in log_p.items():
            self.log_p[word] = value

    def step(self, words):
        super().step(words)
        return self.log_p.expand(len(words), V)


def test_search_ends_early_exactly_when_nothing_can_beat_the_best():
    # END at once scores log .6; a living hypothesis of log .4 after the first word can reach log .4 / 20^α
    log_p = {END: math.log(0.6), 4: math.log(0.4)}
    without = Fixed(log_p, 1, 2)
    assert searched(without, [20], 2, 0.0) == [[]]
    assert without.steps == 1
    # with α = 1: after n words the bound is n log .4 / 20, and the best is END at once, log .6 = −.511,
    # until n log .4 / 20 ≤ log .6: n = 12
    by_length = Fixed(log_p, 1, 2)
    assert searched(by_length, [20], 2, 1.0) == [[]]
    assert by_length.steps == 12
    greedy = Fixed(log_p, 3, 1)
    assert searched(greedy, [20, 3, 9], 1, 1.0) == [[], [], []]
    assert greedy.steps == 1


def test_greedy_compares_words_without_rounding():
    """After a long way down, sums of log-probabilities are too coarse to tell two words apart."""

    class Close(Table):
        def step(self, words):
            super().step(words)
            log_p = torch.full((V,), -40.0)
            if self.steps <= 40:
                log_p[[4, 5, 1]] = 0.0
            else:
                log_p[END], log_p[5] = 0.0, 2e-7  # one rounding step apart
            return log_p.expand(len(words), V)

    output = searched(Close(0, [0], 1), [60], 1, 1.0)[0]
    assert len(output) == 59


# ---- a model


class Uncached:
    """The slow way: every step runs the whole prefix of every line again."""

    def __init__(self, model, sources, width):
        self.model = model
        self.sources = [source for source in sources for _ in range(width)]
        self.prefixes = [[] for _ in self.sources]

    def step(self, words):
        self.prefixes = [[*prefix, word] for prefix, word in zip(self.prefixes, words.tolist(), strict=True)]
        pairs = Pairs(self.sources, [np.array(prefix[1:], dtype=np.int64) for prefix in self.prefixes])
        batch = make_batch(pairs, range(len(self.sources)), window=1)
        assert set(batch.target_in[batch.target_rows.positions == 0].tolist()) == {BEGIN}
        hidden = self.model.decode(batch, self.model.encode(batch.source, batch.encoder))
        return self.model.output_embedding(pad_rows(hidden, batch.target_rows)[:, -1])

    def select(self, lines):
        self.prefixes = [list(self.prefixes[i]) for i in lines.flatten().tolist()]
        self.sources = [self.sources[i] for i in lines.flatten().tolist()]


def build(method, config=None, words=20, dtype=torch.float64):
    """In evaluation, with random running statistics and words distinct enough to end at different places."""
    config = config or ModelConfig(d_model=16, heads=8, d_ff=20, encoder_layers=1, decoder_layers=2)
    model = Transformer(config, words, words, make_method(METHODS[method]))
    initialise(model, 3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith(("running_mean", "bias")):
                tensor.copy_(0.3 * torch.randn(tensor.shape, generator=generator))
            if name.endswith("running_var"):
                tensor.copy_(0.05 + 0.2 * torch.rand(tensor.shape, generator=generator))
        model.output_embedding.weight.mul_(2)
    return model.to(dtype).eval()


def some_sources(n=7, words=20, longest=6, seed=5):
    rng = np.random.default_rng(seed)
    return [rng.integers(4, words, rng.integers(0, longest + 1)) for _ in range(n)]


class Cached:
    """The model's own lines of a search for these sentences, in this order."""

    def __init__(self, model, sources, width):
        batch = make_batch(Pairs(sources, sources), range(len(sources)), window=1)
        self.model = model
        self.state = model.start(model.encode(batch.source, batch.encoder), batch.source_rows, width)
        self.select = self.state.select

    def step(self, words):
        return self.model.output_embedding(self.model.step(words, self.state))


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("method", METHODS)
@torch.inference_mode()
def test_cached_decoding_gives_the_same_words_as_uncached(method, width):
    model, sources = build(method), some_sources()
    limits = torch.tensor([len(source) + 4 for source in sources])
    outputs = searched(Cached(model, sources, width), limits, width, 1.0)
    assert outputs == searched(Uncached(model, sources, width), limits, width, 1.0)
    config = DecodeConfig(beam=width, length_penalty=1.0, max_length_factor=1.0, max_length_offset=3)
    assert translate(model, sources, config) == outputs
    short = translate(model, sources, config.model_copy(update={"length_penalty": 0.0}))
    assert short == searched(Cached(model, sources, width), limits, width, 0.0)
    assert len(set(map(len, outputs))) > 1 or width > 1  # the test is worth something
    assert len(set(map(str, outputs))) > 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.inference_mode()
def test_a_half_precision_model_sees_nothing_that_is_masked(dtype):
    """Float16 ends long before the number that masks."""
    model, sources, W = build("baseline", dtype=dtype), some_sources(), 3
    decoders = Cached(model, sources, W), Cached(copy.deepcopy(model).float(), sources, W)
    words = torch.full((len(sources) * W,), BEGIN)
    for position in range(3):
        narrow, exact = (decoder.step(words) for decoder in decoders)
        torch.testing.assert_close(narrow.float(), exact, atol=0.1 if dtype == torch.bfloat16 else 0.01, rtol=0.0)
        lines = torch.arange(len(words)).view(-1, W)
        words = (lines.flatten() + position) % 16 + 4
        for decoder in decoders:
            decoder.select(lines)


@pytest.mark.parametrize("method", METHODS)
@torch.inference_mode()
def test_cached_logits_are_the_uncached_ones_whatever_is_selected(method):
    model, sources, W = build(method), some_sources(4), 3
    fast, slow = Cached(model, sources, W), Uncached(model, sources, W)
    rng, sentence = np.random.default_rng(6), np.arange(4).repeat(W)  # of each line
    for position, going in enumerate(([0, 1, 2, 3], [0, 1, 2, 3], [0, 2, 3], [2, 3], [2], [2])):
        words = torch.from_numpy(rng.integers(20, size=len(sentence))) if position else torch.full((4 * W,), BEGIN)
        torch.testing.assert_close(fast.step(words), slow.step(words))
        lines = np.stack([rng.choice(np.flatnonzero(sentence == s), W) for s in going])
        sentence = sentence[lines].flatten()
        for decoder in (fast, slow):
            decoder.select(torch.from_numpy(lines))


@torch.inference_mode()
def test_a_module_without_caches_of_its_own_decodes_to_the_same(monkeypatch):
    """By computing every line's text anew."""
    for name in ("self_cache", "cross_cache", "step"):
        monkeypatch.setattr(MultiHeadAttention, name, getattr(AttentionModule, name))
    test_cached_logits_are_the_uncached_ones_whatever_is_selected("baseline")


@pytest.mark.parametrize("width", [1, 4])
def test_translations_do_not_depend_on_batches_or_order(width):
    model, sources = build("direct-8"), some_sources(6)
    expected = translate(model, sources, DecodeConfig(beam=width))
    order = [4, 0, 2, 1, 3, 5]
    translations = translate(model, [sources[i] for i in order], DecodeConfig(beam=width, batch_sentences=4))
    assert translations == [expected[i] for i in order]


def test_outputs_are_as_long_as_is_allowed_and_the_model_has_positions(monkeypatch):
    monkeypatch.setattr(decode, "MAX_POSITIONS", 12)
    allowed = []
    monkeypatch.setattr(decode, "beam_search", lambda *parts: allowed.extend(parts[2].tolist()) or [[]] * 5)
    sources = some_sources(5)
    translate(build("baseline"), sources, DecodeConfig(max_length_factor=2.0, max_length_offset=3))
    expected = [2 * (len(source) + 1) + 3 for source in sources]  # END counts on both sides
    assert sorted(allowed) == sorted(min(length, 12) for length in expected)
    assert min(expected) < 12 < max(expected)


def test_translating_leaves_no_gradient_and_the_model_in_evaluation():
    model = build("direct-8").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    translate(model, some_sources(3), DecodeConfig(beam=2))
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
