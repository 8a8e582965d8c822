"""Which corpus a run reads; each task (`headdiv.companion.tasks`) adds how it is prepared."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from headdiv.core.settings import Settings


class DataConfig(Settings):
    """Which corpus a run reads.

    Attributes:
        scored_alone: keys that decide only what a finished run is scored on, not training or the prepared corpus.
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
        """The data set's names of a run's three splits."""
        return {"train": "train", "valid": self.valid, "test": self.test}

    @property
    def read_splits(self) -> dict[str, str]:
        """Those of `splits` that are read from files."""
        return self.splits

    def deciding(self) -> dict[str, Any]:
        """The settings that decide training and the prepared corpus, as JSON: all but `scored_alone`."""
        deciding = self.model_dump(mode="json", exclude={*self.scored_alone})
        if self.files is not None:
            deciding["files"] = {
                name: files for name, files in deciding["files"].items() if name in self.read_splits.values()
            }
        return deciding

    def scored_besides(self) -> dict[str, Any]:
        """The settings of `scored_alone` that are set, with the files of the splits that they name."""
        settings = self.model_dump(mode="json", include={*self.scored_alone})
        splits = {name for names in settings.values() for name in names}
        files = {name: paths for name, paths in (self.files or {}).items() if name in splits}
        if files:
            settings["files"] = files
        return settings


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

    @property
    def word_rules(self) -> dict[str, Any]:
        """How text becomes words, as `headdiv.companion.data.tokenization.words.tokenize` takes it."""
        return {"lowercase": self.lowercase, "tokenizer": self.tokenizer}
