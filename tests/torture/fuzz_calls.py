"""Calls of the library, with strategies for their arguments as plain data, which `fuzz_library.made` makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from mutations import VALUES
from torch import nn

import headdiv
from headdiv import gha
from headdiv.analysis import comparison, components, masking, similarity, statistics
from headdiv.core.settings import check
from headdiv.methods.registry import METHODS
from headdiv.nn import decoding
from headdiv.nn.sizes import DecodeConfig, ModelConfig
from headdiv.nn.transformer import Transformer

DTYPES = ["float32"] * 30 + ["float64", "float16", "bfloat16", "int64", "bool", "complex64", "uint8"]
FILLINGS = ["normal"] * 16 + ["zeros", "ones", "nan", "inf", "huge", "tiny", "negative", "one nan"]
D, H = 16, 4
ODD_SHAPES = [
    (),
    (0,),
    (1,),
    (3,),
    (0, 0),
    (1, 1),
    (2, 3),
    (3, 2),
    (0, 3, 3),
    (2, 0, 4),
    (2, 3, 4),
    (1, 2, 3, 4),
    (5, 1, 1, 1, 1),
]
odd = st.sampled_from(VALUES)
numbers = st.sampled_from([0, 1, -1, 2, 3, 0.5, 1e-30, 1e30, math.nan, math.inf, 10**40, None, "1", True, [], 1.5])


def tensor(*shapes: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """Mostly a tensor of one of these shapes."""
    every = [*shapes] * (40 // len(shapes)) + ODD_SHAPES
    right = st.tuples(
        st.just("tensor"), st.sampled_from(every).map(list), st.sampled_from(DTYPES), st.sampled_from(FILLINGS)
    )
    return st.one_of(*[right.map(list)] * 15, odd)


def usual(*values: Any) -> st.SearchStrategy[Any]:
    """Mostly one of these."""
    return st.one_of(*[st.sampled_from(values)] * 9, numbers)


def several(one: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists, and what is no list: endless or once."""
    lists = st.lists(one, max_size=3)
    return st.one_of(
        lists.map(lambda each: ["list", *each]),
        lists.map(lambda each: ["list", *each]),
        lists.map(lambda each: ["generator", *each]),
        one.map(lambda each: ["endless", each]),
        one.map(lambda each: ["cycle", each]),
        odd,
    )


# ---- models


def small(method: Any = "baseline", **options: Any) -> nn.Module:
    """Two layers of torch's encoder with our attention."""
    torch.manual_seed(1)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H, 16, batch_first=True), 2, enable_nested_tensor=False)
    headdiv.insert(model, headdiv.make_method(method, **options))
    return model


def transformer() -> Transformer:
    """An encoder-decoder of our own."""
    torch.manual_seed(1)
    sizes = ModelConfig(d_model=D, heads=H, encoder_layers=1, decoder_layers=1, d_ff=16)
    return Transformer(sizes, 11, 11, headdiv.make_method("baseline")).eval()


# ---- calls

Call = tuple[Callable[..., Any], dict[str, st.SearchStrategy[Any]]]
OPTIONS = sorted({field for name in METHODS for field in METHODS[name].Options.model_fields})
names = st.one_of(st.sampled_from(sorted(METHODS)), odd)
some_options = st.dictionaries(
    st.sampled_from(OPTIONS), st.one_of(st.sampled_from([1, 2, 0.5, "direct", "hard", "encoder"]), odd), max_size=3
)
head = st.sampled_from(
    [["encoder 1", 1], ["encoder 2", 4], ["encoder 9", 1], ["encoder 1", 0], ["encoder 1", 1.0], "encoder 1", None]
)
C, w = tensor((3, 3), (2, 3, 3)), tensor((3, 2), (2, 3, 2), (3, 3))
scores = st.dictionaries(
    st.sampled_from(["baseline", "a", "b", "c", "d"]),
    st.one_of(
        st.dictionaries(st.integers(1, 3), st.sampled_from([1.0, 2.5, -3.0, math.nan, math.inf, 1e308, 0]), max_size=3),
        odd,
    ),
    max_size=5,
)
batch = tensor((2, 5, D), (1, 1, D))
padding = st.one_of(st.none(), tensor((2, 5)))


def attention(build: dict[str, Any], query: Any, key: Any, same: bool, **masks: Any) -> Any:
    """The drop-in, built and called."""
    module = headdiv.MultiheadAttention(**({"embed_dim": D, "num_heads": H, "batch_first": True} | build))
    return module(query, query if same else key, query if same else key, **masks)


def option(build: dict[str, Any], options: dict[str, Any]) -> Any:
    return headdiv.make_method(build, **options)


def train(batches: Any, method: Any, options: dict[str, Any], loss: str, until: Any) -> Any:
    """A training of at most a few steps."""
    losses: dict[str, Any] = {
        "mean": lambda model, x: model(x).square().mean(),
        "each": lambda model, x: model(x).square().mean(-1),
        "nan": lambda model, x: model(x).sum() * math.nan,
        "none": lambda model, x: None,
        "number": lambda model, x: 1.0,
    }
    made_method = headdiv.make_method(method)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H, 16, batch_first=True), 1, enable_nested_tensor=False)
    headdiv.insert(model, made_method)
    return headdiv.Trainer(model, batches, losses[loss], method=made_method, **({"epochs": 2} | options)).run(until)


def head_call(name: str) -> Callable[..., Any]:
    """A method of `ModelHeads`."""

    def call(**arguments: Any) -> Any:
        heads = headdiv.ModelHeads(small())
        if name == "importance":
            arguments["loss"] = lambda output: output.square().mean()
        found = getattr(heads, name)(**arguments)
        if hasattr(found, "__enter__"):
            with found:
                return heads.model(torch.randn(2, 5, D))
        return list(found) if name == "observed" else found

    return call


def pretrained(name: str, kind: Any, texts: Any, **arguments: Any) -> Any:
    """Texts for a small model of Hugging Face."""
    given = ["a dog runs", "two cats sleep"]
    model, tokenizer = headdiv.pretrained.small_model(kind), headdiv.pretrained.small_tokenizer(given, 300)
    if name == "tokenizer":
        return headdiv.pretrained.small_tokenizer(texts, **arguments)
    if name == "examples":
        return headdiv.pretrained.text_examples(model, tokenizer, texts)
    if name == "loss":
        return headdiv.pretrained.mean_loss(model, texts)()
    return list(headdiv.pretrained.text_batches(model, tokenizer, texts, **arguments))


def search(sources: Any, decode: dict[str, Any]) -> Any:
    return decoding.translate(transformer(), sources, check(DecodeConfig, decode))


def recorded(model: Any, x: Any, weights: Any) -> Any:
    with headdiv.record_heads(small() if model == "small" else model, weights) as records:
        small()(x) if model != "small" else None
    return [record.padded() for record in records]


def masked(masks: Any) -> Any:
    model = small()
    with headdiv.masked_heads(model, masks):
        return model(torch.randn(2, 5, D))


texts = several(st.sampled_from(["a dog", "", "é", "\x00", "x " * 300, None, 3]))
sources = several(
    st.one_of(tensor((4,)), st.lists(st.sampled_from([0, 1, 2, 5, 10]), max_size=4).map(lambda each: ["array", each]))
)
order = several(head)
values = several(st.sampled_from([1.0, 2.0, 0, -1.5, math.nan, math.inf, 1e308, None, "1"]))
kinds = st.one_of(st.sampled_from(["bert", "gpt2", "t5"]), odd)
trainer_options = st.dictionaries(
    st.sampled_from(
        [
            "epochs",
            "learning_rate",
            "warmup_steps",
            "optimiser",
            "clip_norm",
            "accumulate",
            "precision",
            "patience",
            "x",
        ]
    ),
    st.one_of(st.sampled_from([1, 2, 0.1, "SGD", "bfloat16"]), odd),
    max_size=2,
)
CALLS: dict[str, Call] = {
    "moments": (gha.moments, {"rows": tensor((5, 3), (2, 5, 3))}),
    "covariance": (gha.covariance, {"rows": tensor((5, 3), (2, 5, 3))}),
    "joined_moments": (
        gha.joined_moments,
        {
            "one": st.tuples(usual(3), tensor((3,)), C).map(lambda t: ["list", *t]),
            "other": st.tuples(usual(3), tensor((3,)), C).map(lambda t: ["list", *t]),
        },
    ),
    "sanger_rule": (gha.sanger_rule, {"C": C, "w": w}),
    "stable_learning_rate": (gha.stable_learning_rate, {"C": C, "w": w}),
    "gha_inner_loop": (
        gha.gha_inner_loop,
        {"C": C, "w": w, "steps": usual(3, 20), "lr": st.one_of(st.none(), usual(0.1))},
    ),
    "principal_components": (gha.principal_components, {"C": C, "m": usual(1, 2, 3)}),
    "deacon_update": (gha.deacon_update, {"G": w, "F": w, "delta_p": usual(0.1), "xi": usual(0.5)}),
    "make_method": (headdiv.make_method, {"method": names}),
    "make_method with options": (
        option,
        {"build": st.one_of(names, st.fixed_dictionaries({"name": names})), "options": some_options},
    ),
    "register": (headdiv.register, {"method": odd, "name": odd}),
    "MultiheadAttention": (
        attention,
        {
            "build": st.dictionaries(
                st.sampled_from(
                    [
                        "embed_dim",
                        "num_heads",
                        "method",
                        "dropout",
                        "bias",
                        "add_bias_kv",
                        "add_zero_attn",
                        "kdim",
                        "vdim",
                        "batch_first",
                        "kind",
                        "layer",
                        "dtype",
                    ]
                ),
                st.one_of(usual(16, 4, 8, "deacon", "moa", "mixing", "cross", "encoder", 0.5), odd),
                max_size=2,
            ),
            "query": batch,
            "key": batch,
            "same": st.booleans(),
        },
    ),
    "masks of MultiheadAttention": (
        attention,
        {
            "build": st.dictionaries(
                st.just("method"), st.sampled_from(sorted(set(METHODS) - {"combined"})), max_size=1
            ),
            "query": batch,
            "key": batch,
            "same": st.booleans(),
            "key_padding_mask": padding,
            "attn_mask": st.one_of(st.none(), tensor((5, 5), (8, 5, 5))),
            "is_causal": st.booleans(),
            "need_weights": st.booleans(),
            "average_attn_weights": st.booleans(),
        },
    ),
    "insert": (
        lambda model, method: headdiv.insert(
            nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H), 1)
            if model == "encoder"
            else headdiv.pretrained.small_model("bert")
            if model == "bert"
            else model,
            method,
        ),
        {"model": usual("encoder", "bert"), "method": st.one_of(names, st.fixed_dictionaries({"name": names}), odd)},
    ),
    "attach": (lambda kind: headdiv.attach(headdiv.pretrained.small_model(kind)), {"kind": kinds}),
    "attach to anything": (headdiv.attach, {"model": odd}),
    "load": (headdiv.load, {"folder": odd}),
    "remove_method": (headdiv.remove_method, {"model": odd}),
    "fold": (headdiv.fold, {"model": odd}),
    "ModelHeads": (headdiv.ModelHeads, {"model": odd}),
    "record_heads": (recorded, {"model": usual("small"), "x": batch, "weights": usual(True, False)}),
    "masked_heads": (
        masked,
        {
            "masks": st.one_of(
                st.dictionaries(
                    st.sampled_from(["encoder 1", "encoder 2", "x"]),
                    st.one_of(tensor((H,)), st.just([1, 0, 1, 0]), odd),
                    max_size=2,
                ),
                odd,
            )
        },
    ),
    "observed": (head_call("observed"), {"batches": several(batch), "special": st.one_of(st.just([]), odd)}),
    "measures": (head_call("measures"), {"batches": several(batch), "enough": usual(1, 10, math.inf)}),
    "table": (head_call("table"), {"batches": several(batch)}),
    "importance": (head_call("importance"), {"batches": several(batch), "by_layer": st.booleans()}),
    "without": (head_call("without"), {"gone": order}),
    "edited": (head_call("edited"), {"edits": odd}),
    "patched": (head_call("patched"), {"outputs": odd}),
    "remove": (head_call("remove"), {"gone": order}),
    "pruning_curve": (
        lambda **a: headdiv.ModelHeads(small()).pruning_curve(lambda: 1.0, **a),
        {"order": order, "steps": usual(1, 3)},
    ),
    "leave_one_out": (
        lambda **a: headdiv.ModelHeads(small()).leave_one_out(lambda: 1.0, **a),
        {"gone": order, "better": usual("lower", "higher")},
    ),
    "least_important_first": (masking.least_important_first, {"importance": several(odd)}),
    "measure_heads": (similarity.measure_heads, {"observed": several(odd)}),
    "compare_heads": (similarity.compare_heads, {"observed": several(odd), "enough": usual(1)}),
    "column_cosines": (similarity.column_cosines, {"w": w}),
    "column_correlations": (similarity.column_correlations, {"w": w}),
    "mean_off_diagonal": (similarity.mean_off_diagonal, {"matrix": C}),
    "entropies": (similarity.entropies, {"weights": tensor((2, 5), (2, H, 5, 5))}),
    "compare_components": (components.compare_components, {"w": w, "C": C}),
    "interval": (statistics.interval, {"values": values}),
    "coefficient_of_variation": (statistics.coefficient_of_variation, {"values": values}),
    "half_width": (statistics.half_width, {"deviation": usual(1.0), "count": usual(2, 3)}),
    "against": (comparison.against, {"scores": st.one_of(scores, odd), "baseline": usual("baseline", "a")}),
    "contrasts": (
        comparison.contrasts,
        {
            "scores": scores,
            "weights": several(
                st.dictionaries(st.sampled_from(["a", "b", "baseline", "z"]), usual(1.0, -1.0), max_size=3)
            ),
        },
    ),
    "simultaneous_quantile": (comparison.simultaneous_quantile, {"correlation": C, "freedom": usual(3, 4)}),
    "translate": (
        search,
        {
            "sources": sources,
            "decode": st.dictionaries(
                st.sampled_from(
                    ["beam", "length_penalty", "max_length_factor", "max_length_offset", "batch_sentences"]
                ),
                usual(1, 2, 4),
                max_size=2,
            ),
        },
    ),
    "text_batches": (
        lambda **a: pretrained("batches", **a),
        {"kind": kinds, "texts": texts, "size": usual(1, 2), "length": usual(4, 9)},
    ),
    "text_examples": (lambda **a: pretrained("examples", **a), {"kind": st.just("gpt2"), "texts": texts}),
    "small_tokenizer": (
        lambda **a: pretrained("tokenizer", **a),
        {"kind": st.just("gpt2"), "texts": texts, "words": usual(300)},
    ),
    "mean_loss": (lambda **a: pretrained("loss", **a), {"kind": st.just("gpt2"), "texts": several(odd)}),
    "Trainer": (
        train,
        {
            "batches": several(batch),
            "method": st.one_of(st.just("baseline"), st.just("disagreement"), names),
            "options": trainer_options,
            "loss": st.sampled_from(["mean", "mean", "each", "nan", "none", "number"]),
            "until": st.one_of(st.none(), usual(1)),
        },
    ),
}


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    """A call with its arguments as plain data."""
    name = draw(st.sampled_from(sorted(CALLS)))
    return {"call": name, "arguments": {key: draw(values) for key, values in CALLS[name][1].items()}}
