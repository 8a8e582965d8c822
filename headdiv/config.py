"""What a run is: its settings by task, checked before anything starts, and the hash that names it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializeAsAny,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from headdiv.files import short_hash
from headdiv.settings import Settings

RECIPE = 2  # raised whenever a change of the code changes what a configuration trains to

Decay = Annotated[float, Field(ge=0, lt=1)]


# ---- data


class DataConfig(Settings):
    """Which corpus; every task adds how it is prepared."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",  # it becomes part of a folder's name
        description="'toy' (generated), a data set of the registry, or a name for your own 'files'",
    )
    files: dict[str, Any] | None = Field(None, description="your own files, by split")
    strict: bool = Field(True, description="a record that cannot be used: an error; false leaves it out and counts it")
    valid: str = Field("valid", description="split that is watched during training")
    test: str = Field("test", description="split that is scored")
    examples: int | None = Field(None, ge=1, description="take this many training examples only; toy: generate them")
    held_out: int = Field(500, ge=1, description="toy only: examples in each of validation and test")


class WordsConfig(DataConfig):
    """Text as words by the rules of a tokeniser, with an index each."""

    tokenizer: Literal["moses", "spacy"] = Field(
        "moses", description="Moses rules (sacremoses), or those of spaCy's blank pipeline of the language"
    )
    lowercase: bool = Field(
        False, description="fold case before words are counted: ahead of Moses rules, behind spaCy's"
    )
    min_frequency: int = Field(5, ge=1, description="a word seen less often in the training text is <unk>")


def _path_or_paths(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:  # which would speak of every kind of value that is allowed
        raise PydanticCustomError("paths", "Input should be a path or a list of paths") from None


PathOrPaths = Annotated[str | Annotated[list[str], Field(min_length=1)], WrapValidator(_path_or_paths)]


class TranslationData(WordsConfig):
    """Parallel text: files of each language, or an archive with both."""

    files: dict[str, dict[str, PathOrPaths]] | None = Field(
        None,
        description="by split and language, a file or several in their order: *.xml is a TED test set, train.tags.* "
        "tagged TED text, all else has one sentence a line; or by split {archive: de-en.tgz}, in WIT³'s layout",
    )
    source: str = Field("en", description="language translated from")
    target: str = Field("de", description="language translated into")
    split_dashes: bool = Field(True, description="Moses rules part words at dashes (a-b: a @-@ b)")
    max_words: int | None = Field(None, ge=1, description="training pairs with more words on a side, or none, go out")
    max_ratio: float | None = Field(None, ge=1, description="training pairs whose sides' words differ by more go out")
    valid_every: int | None = Field(
        None, ge=2, description="every so-manieth training pair that is left is validation; null: a split of its own"
    )
    merges: int | None = Field(
        None,
        ge=1,
        description="of a byte-pair encoding of both languages' words; case is then folded behind Moses rules, as is "
        "usual with it, not before; null: whole words",
    )

    @property
    def cleans(self) -> bool:
        """Whether training pairs are left out."""
        return self.max_words is not None or self.max_ratio is not None

    @property
    def selects(self) -> bool:
        """Whether training pairs are left out, or taken for validation."""
        return self.cleans or self.valid_every is not None

    @model_validator(mode="after")
    def _dashes_are_of_moses_rules(self) -> TranslationData:
        if self.tokenizer != "moses" and not self.split_dashes:
            raise ValueError(f"split_dashes: it is a choice of Moses rules, and the tokenizer is {self.tokenizer!r}")
        return self


class SummarisationData(WordsConfig):
    """JSON lines {id, document, summary}."""

    files: dict[str, str] | None = Field(None, description="by split: JSON lines {id, document, summary}")
    document_words: int = Field(400, ge=1, description="words of a document that are read; the rest is cut off")
    summary_words: int = Field(60, ge=1, description="words of a training summary; the rest is cut off")


class QAData(WordsConfig):
    """Questions on passages, in SQuAD's JSON form."""

    tokenizer: Literal["moses"] = Field("moses", description="Moses rules; answers are found as words of theirs")
    files: dict[str, str] | None = Field(None, description="by split: a file in SQuAD v1.1's JSON form")
    context_words: int = Field(400, ge=1, description="words of a passage that are read; the rest is cut off")
    question_words: int = Field(60, ge=1, description="words of a question that are read")


class LMData(DataConfig):
    """Plain text, or shards of JSON lines in SlimPajama's form, as a stream."""

    files: dict[str, list[str]] | None = Field(None, description="by split: files or patterns (*.jsonl.zst, *.txt)")
    mixture: dict[str, Annotated[float, Field(gt=0)]] | None = Field(
        None, description="weights by source of SlimPajama; null: one stream, the files in their order"
    )
    document_start: str | None = Field(
        None, description="plain text: pattern of a document's first line; null: empty lines part documents"
    )
    tokenizer_file: str | None = Field(None, description="a tokenizer.json (GPT-NeoX's); null: train one")
    tokenizer_documents: int = Field(2000, ge=1, description="training documents from which a tokeniser is trained")
    vocabulary_size: int = Field(50254, ge=257, description="V, entries of the byte-pair encoding")
    context: int = Field(1024, ge=4, description="tokens of a window")
    held_out_tokens: int | None = Field(
        None, ge=1, description="tokens of each held-out split, mixed like the training text; null: all, as it stands"
    )
    boundaries: bool = Field(True, description="attention and positions begin anew with each document")
    epoch_tokens: int = Field(ge=1, description="training tokens that are called an epoch")
    block: int = Field(256, ge=1, description="windows that are shuffled together")


class MLMData(LMData):
    """The same text with tokens hidden from the model; defaults are BERT's."""

    mask_share: float = Field(0.15, gt=0, le=1, description="of the tokens: those that are to be predicted")
    blank_share: float = Field(0.8, ge=0, le=1, description="of these: read as a blank…")
    random_share: float = Field(0.1, ge=0, le=1, description="…and read as a random token; the rest as they are")

    @model_validator(mode="after")
    def _shares_make_a_whole(self) -> MLMData:
        if self.blank_share + self.random_share > 1:
            raise ValueError(f"random_share: {self.random_share} and blank_share = {self.blank_share} exceed 1")
        return self


# ---- model


class Sizes(Settings):
    """What every Transformer has."""

    d_model: int = Field(256, ge=1, description="width D of the embeddings and of every sub-layer")
    heads: int = Field(8, ge=1, description="attention heads h")
    d_ff: int = Field(512, ge=1, description="inner width of the feed-forward layers")
    dropout: float = Field(0.1, ge=0, lt=1, description="on embeddings and on every sub-layer's output")
    attention_bias: bool = Field(False, description="bias of the query, key and value projections")
    activation: Literal["relu", "gelu"] = Field("relu", description="of the feed-forward layers")

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Sizes:
        if self.d_model % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide d_model = {self.d_model}")
        return self


class ModelConfig(Sizes):
    """Sizes of the encoder-decoder Transformer; defaults are those of DEACON's Table 3."""

    encoder_layers: int = Field(2, ge=1)
    decoder_layers: int = Field(2, ge=1)
    tied_output: bool = Field(False, description="the output embedding is the target embedding")


class LMConfig(Sizes):
    """Sizes of a Transformer of one stack; defaults are GPT-2 medium's, which give Table 6's baseline count."""

    d_model: int = Field(1024, ge=1, description="width D of the embeddings and of every sub-layer")
    heads: int = Field(16, ge=1, description="attention heads h")
    d_ff: int = Field(4096, ge=1, description="inner width of the feed-forward layers")
    attention_bias: bool = Field(True, description="bias of the query, key and value projections")
    activation: Literal["relu", "gelu"] = Field("gelu", description="of the feed-forward layers")
    layers: int = Field(24, ge=1)


# ---- training


class TrainConfig(Settings):
    """Optimiser, schedule and batches."""

    epochs: int = Field(30, ge=1)
    tokens_per_batch: int = Field(1800, ge=1, description="most tokens in a batch, as the task counts them")
    batching: Literal["random", "bucketed"] = Field("random", description="bucketed: similar lengths together")
    learning_rate: float = Field(5e-4, gt=0, description="Adam's step at its peak")
    schedule: Literal["constant", "inverse_sqrt", "linear"] = Field(
        "inverse_sqrt", description="after the warm-up: stay, fall with 1/√step, or fall to 0 in a line"
    )
    warmup_steps: int = Field(400, ge=0, description="linear rise from 0")
    betas: tuple[Decay, Decay] = Field((0.9, 0.98), description="Adam's decay rates")
    epsilon: float = Field(1e-9, gt=0, description="Adam's ε")
    weight_decay: float = Field(0.0, ge=0, description="decoupled (AdamW)")
    clip_norm: float | None = Field(1.0, gt=0, description="largest norm of the gradient; null: no clipping")
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    precision: Literal["float32", "bfloat16"] = Field("float32", description="bfloat16: matrix products only")
    epoch_scores: int = Field(
        0, ge=0, description="translation: after each epoch so many pairs of training and of validation are scored"
    )
    checkpoint_seconds: float = Field(120.0, gt=0, description="longest work lost when a run is killed")


# ---- output


class DecodeConfig(Settings):
    """How translations and summaries are searched."""

    beam: int = Field(5, ge=1, description="hypotheses kept; 1 is greedy search")
    length_penalty: float = Field(1.0, ge=0, description="α: scores are divided by length to the power α")
    max_length_factor: float = Field(1.5, ge=0, description="longest output, as a multiple of the source…")
    max_length_offset: int = Field(10, ge=1, description="…plus so many tokens")
    batch_sentences: int = Field(64, ge=1, description="sentences searched together")


class SpanConfig(Settings):
    """How an answer is chosen in its passage."""

    max_answer_words: int = Field(30, ge=1, description="longest answer")


class TimingConfig(Settings):
    """How the time of inference is measured: greedy, one text, keys and values cached."""

    prompt_tokens: int = Field(16, ge=1, description="tokens read before the clock starts")
    new_tokens: int = Field(64, ge=1, description="tokens written and timed")


class RunConfig(Settings):
    """One variant of one paper's task with one seed."""

    paper: str
    task: str = Field(description="the paper's task: a name in its file")
    kind: str = Field(description="what kind of task that is: translation, summarisation, qa, lm, mlm")
    variant: str
    data: SerializeAsAny[DataConfig]
    model: SerializeAsAny[Sizes] = ModelConfig()
    method: dict[str, Any] = Field(description="name of the method and all its options")
    train: TrainConfig = TrainConfig()
    decode: SerializeAsAny[Settings] = DecodeConfig()
    seed: int = Field(ge=0)
    threads: int = Field(1, ge=1, description="CPU threads; results are equal bit for bit for an equal number")

    @property
    def hash(self) -> str:
        """Equal for all runs that train the same thing: what is left out is names, and the search of outputs."""
        told = self.model_dump(mode="json", exclude={"paper", "task", "variant", "decode"})
        del told["train"]["checkpoint_seconds"]
        if not told["train"]["epoch_scores"]:  # came later: what was trained before it is what it was
            del told["train"]["epoch_scores"]
        return short_hash({"recipe": RECIPE, **told})


def first_difference(one: dict[str, Any], other: dict[str, Any], sections: Iterable[str]) -> str | None:
    """The first key ("train.epochs") with which two stored configurations ask for different results.

    When checkpoints are written changes nothing, and a key that only one has came later than the other.

    Args:
        one: a run's configuration as its metrics keep it.
        other: another's.
        sections: those that are compared: "data", "model", "method", "train", "decode".
    """
    for section in sections:
        mine, its = one.get(section, {}), other.get(section, {})
        for key, value in mine.items():
            if key in its and value != its[key] and key != "checkpoint_seconds":
                return f"{section}.{key}"
    return None
