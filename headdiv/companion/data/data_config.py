"""Which corpus a run reads, and how it is prepared."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from headdiv.core.settings import Distinct, Settings, hash_neutral


class DataConfig(Settings):
    """Which corpus; every task adds how it is prepared.

    Attributes:
        scored_alone: keys that decide neither training nor prepared corpus, but what a finished run is scored on.
    """

    scored_alone: ClassVar[tuple[str, ...]] = ()

    name: str = Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",  # it becomes part of a folder's name
        description="'toy' (generated), a data set of the registry, or a name for your own 'files'",
    )
    files: dict[str, Any] | None = Field(None, description="your own files, by split")
    strict: bool = Field(True, description="a record that cannot be used: an error; false leaves it out and counts it")
    valid: str = Field("valid", description="split that is evaluated during training")
    test: str = Field("test", description="split that is scored")
    examples: int | None = Field(None, ge=1, description="take this many training examples only; toy: generate them")
    held_out: int = Field(
        500, ge=1, description="toy only, but for running text: examples in each of validation and test"
    )

    @property
    def is_toy(self) -> bool:
        """Whether the corpus is generated."""
        return self.files is None and self.name == "toy"

    @property
    def splits(self) -> dict[str, str]:
        """What the three splits of a run are called in the data set."""
        return {"train": "train", "valid": self.valid, "test": self.test}

    @property
    def read_splits(self) -> dict[str, str]:
        """Those of `splits` that are read from files."""
        return self.splits

    def deciding(self) -> dict[str, Any]:
        """As JSON what decides training and prepared corpus: nothing that only a finished run is scored on."""
        found = self.model_dump(mode="json", exclude={*self.scored_alone})
        if self.files is not None:
            found["files"] = {name: found["files"][name] for name in self.files if name in self.read_splits.values()}
        return found

    def scored_besides(self) -> dict[str, Any]:
        """The rest, as far as it is set, with the files that it names."""
        found = self.model_dump(mode="json", include={*self.scored_alone})
        named = {name for value in found.values() for name in value}
        files = {name: paths for name, paths in (self.files or {}).items() if name in named}
        return found | ({"files": files} if files else {})


class WordsConfig(DataConfig):
    """Text as words by the rules of a tokeniser, with an index each."""

    tokenizer: Literal["moses", "spacy", "lossless"] = Field(
        "moses",
        description="Moses rules (sacremoses), those of spaCy's blank pipeline of the language, or lossless: words and "
        "signs that know whether a space stood before them, so that text comes back as it was, in any language",
    )
    lowercase: bool = Field(
        False,
        description="fold case before words are counted: before Moses rules (in qa after them), after spaCy's",
    )
    min_frequency: int = Field(5, ge=1, description="a word seen less often in the training text is <unk>")


SplitName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]  # it becomes part of files' names


class TranslationData(WordsConfig):
    """Parallel text: files of each language, or an archive with both."""

    scored_alone = ("more_tests",)

    files: dict[str, dict[str, str | list[str]]] | None = Field(
        None,
        description="by split and language, a file or several in their order: *.xml is a TED test set, train.tags.* "
        "tagged TED text, all else has one sentence a line; or by split {archive: de-en.tgz}, in WIT³'s layout",
    )
    source: str = Field("en", description="language translated from")
    target: str = Field("de", description="language translated into")
    split_dashes: bool = Field(True, description="Moses rules split words at dashes (a-b: a @-@ b)")
    max_words: int | None = Field(
        None, ge=1, description="training pairs with more words on a side, or none, are left out"
    )
    max_ratio: float | None = Field(None, ge=1, description="most words of one side per word of the other")
    valid_every: int | None = Field(
        None, ge=2, description="every n-th remaining training pair is used for validation; null: a split of its own"
    )
    merges: int | None = Field(
        None,
        ge=1,
        description="of a byte-pair encoding of both languages' words; case is then folded after Moses rules, as is "
        "usual with it, not before; null: whole words",
    )

    tokenized: bool = hash_neutral(
        False,
        description="the files' text is tokenised already by Moses' scripts: its words are joined again and entities "
        "(&apos;) undone before anything else",
    )
    joint_vocabulary: bool = hash_neutral(
        False, description="one vocabulary of both languages, each word counted on both sides; model.tied: all needs it"
    )
    more_tests: Distinct[SplitName] = hash_neutral(
        [], description="further test splits that a finished run is scored on; training and hash do not depend on them"
    )

    @property
    def cleans(self) -> bool:
        """Whether training pairs are left out."""
        return self.max_words is not None or self.max_ratio is not None

    @property
    def read_splits(self) -> dict[str, str]:
        """Without validation where `valid_every` takes it from the training pairs."""
        return {key: name for key, name in self.splits.items() if key != "valid" or self.valid_every is None}

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
    document_words: int = Field(
        400, ge=1, lt=4096, description="words of a document that are read; the rest is cut off"
    )
    summary_words: int = Field(60, ge=1, lt=4096, description="words of a summary; the rest is cut off")


class QAData(WordsConfig):
    """Questions on passages, in SQuAD's JSON form."""

    tokenizer: Literal["moses"] = Field("moses", description="Moses rules; answers are found as words of theirs")
    files: dict[str, str | list[str]] | None = Field(
        None, description="by split: a file in SQuAD v1.1's JSON form, or several in their order"
    )
    context_words: int = Field(400, ge=1, lt=4096, description="words of a passage that are read; the rest is cut off")
    question_words: int = Field(60, ge=1, lt=4096, description="words of a question that are read")


class LMData(DataConfig):
    """Plain text, or shards of JSON lines in SlimPajama's form, as a stream."""

    files: dict[str, list[str]] | None = Field(None, description="by split: files or patterns (*.jsonl.zst, *.txt)")
    mixture: Annotated[dict[str, Annotated[float, Field(gt=0)]], Field(min_length=1)] | None = Field(
        None, description="weights by source of SlimPajama; null: one stream, the files in their order"
    )
    document_start: str | None = Field(
        None, description="plain text: pattern of a document's first line; null: empty lines separate documents"
    )
    tokenizer_file: str | None = Field(None, description="a tokenizer.json (GPT-NeoX's); null: train one")
    tokenizer_documents: int = Field(2000, ge=1, description="training documents from which a tokeniser is trained")
    vocabulary_size: int = Field(50254, ge=257, description="V, entries of the byte-pair encoding")
    context: int = Field(1024, ge=4, le=65536, description="tokens of a window")
    held_out_tokens: int | None = Field(
        None,
        ge=1,
        description="tokens of each held-out split, mixed like the training text (of generated text what there is); "
        "null: all, as it stands",
    )
    boundaries: bool = Field(True, description="attention and positions restart at each document")
    epoch_tokens: int = Field(ge=1, description="training tokens of an epoch")
    block: int = Field(256, ge=1, description="windows that are shuffled together")

    @model_validator(mode="after")
    def _a_stream_has_no_examples(self) -> LMData:
        if self.examples is not None and not self.is_toy:
            raise ValueError("examples: files are read as a stream; epoch_tokens says how much of it an epoch takes")
        return self


class MLMData(LMData):
    """The same text with tokens hidden from the model; defaults are BERT's."""

    mask_share: float = Field(0.15, gt=0, le=1, description="of the tokens: those that are to be predicted")
    blank_share: float = Field(0.8, ge=0, le=1, description="of these: read as the mask token…")
    random_share: float = Field(0.1, ge=0, le=1, description="…and read as a random token; the rest as they are")

    @model_validator(mode="after")
    def _shares_make_a_whole(self) -> MLMData:
        if self.blank_share + self.random_share > 1:
            raise ValueError(f"random_share: {self.random_share} and blank_share = {self.blank_share} exceed 1")
        return self
