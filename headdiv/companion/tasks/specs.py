"""The tasks without torch: what a profile is planned with, and what tables and figures say of stored results.

The other half of a task, how it is trained and scored, is a class after `headdiv.companion.tasks.base.Task`.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from headdiv.companion.data import cache, public_sets
from headdiv.companion.data.data_config import DataConfig, LMData, MLMData, QAData, SummarisationData, TranslationData
from headdiv.companion.data.readers.documents import SLIMPAJAMA
from headdiv.companion.data.readers.ted import languages_of
from headdiv.companion.tasks.task_spec import (
    OF_PARAMETERS,
    TRAINING_LOSS,
    VALIDATION_LOSS,
    Cut,
    MainScore,
    Panel,
    TaskSpec,
)
from headdiv.core.settings import Place, Settings, Source, config_error, nearest, refuse_unread
from headdiv.nn.sizes import DecodeConfig, LMConfig, ModelConfig

# ---- translation


def check_translation_data(config: TranslationData, at: Place = ("data",), source: Source | None = None) -> None:
    """Both languages must be there in every split, as files or in an archive; further test sets likewise."""
    cache.check_data(config, [], at, source)
    for key, language in (("source", "en"), ("target", "de")):
        known = {language} if config.is_toy else _languages(config, at, source)
        value = getattr(config, key)
        if known is not None and value not in known:
            raise config_error((*at, key), f"{value!r} is not known; there are: {', '.join(sorted(known))}", source)
    _check_more_tests(config, at, source)


def _check_more_tests(config: TranslationData, at: Place, source: Source | None) -> None:
    """Further test sets must be there, in both languages or as an archive, and must not be the test set."""
    if config.is_toy:
        refuse_unread(config, ("more_tests",), "generated text has no other splits", at, source)
        refuse_unread(config, ("tokenized",), "generated text is as it is written", at, source)
        return
    roles = cache.roles_of_splits(config)
    for position, name in enumerate(config.more_tests):
        place = (*at, "more_tests", position)
        if name not in roles:
            raise config_error(place, f"{name!r} is not known; there are: {', '.join(sorted(roles))}", source)
        if name in (config.test, *OF_PARAMETERS):
            own = f"is the name of scores {OF_PARAMETERS.get(name)}"
            taken = "is data.test, which is scored anyway" if name == config.test else own
            raise config_error(place, f"{name!r} {taken}; expected another split", source)
        scores = [f"{score}_{name}" for score in (TRANSLATION.test_score_name, *TRANSLATION.also_compared)]
        if taken := [score for score in scores if score in TRANSLATION.score_labels]:
            what = f"its score would replace {taken[0]} ({TRANSLATION.score_label(taken[0])}) of the test set"
            raise config_error(place, f"{name!r} cannot be used: {what}; expected another name", source)
        for language in (config.source, config.target):
            if not {"archive", language} & set(roles[name]):
                raise config_error(
                    place, f"{name!r} has no file for {language!r}; found {', '.join(roles[name])}", source
                )


def _languages(config: TranslationData, at: Place, source: Source | None) -> set[str] | None:
    """The languages of which every split that is read has files; None where an archive's name does not say."""
    known: set[str] | None = None
    roles = cache.roles_of_splits(config)
    for key, name in config.read_splits.items():
        archived = "archive" in roles[name]
        found = _archived(config, key, name, at, source) if archived else set(roles[name])
        if found is not None:
            known = found if known is None else known & found
    return known


def _archived(config: TranslationData, key: str, name: str, at: Place, source: Source | None) -> set[str] | None:
    if key == "valid":
        what = "is missing: the archive holds no validation set; expected a number (23, as published, takes every 23rd)"
        raise config_error((*at, "valid_every"), what, source)
    if config.files is None:
        return languages_of(public_sets.load_registry()[config.name].splits[name].files["archive"])
    files = config.files[name]
    if len(files) > 1 or not isinstance(files["archive"], str):
        what = f"found {', '.join(files)}, expected one archive and nothing else, or files of both languages"
        raise config_error((*at, "files", name), what, source)
    return languages_of(files["archive"])


def check_one_vocabulary(
    model: ModelConfig, data: TranslationData, at: Place = ("model",), source: Source | None = None
) -> None:
    """One embedding of both sides needs one vocabulary."""
    if model.tied and not data.joint_vocabulary:
        what = "source and target have a vocabulary each; expected data.joint_vocabulary: true"
        raise config_error((*at, "tied"), f"found {model.tied!r}, but {what}", source)


WORD_BY_WORD: dict[str, Any] = {  # of both tasks that write a text
    "Model": ModelConfig,
    "Decode": DecodeConfig,
    "unit": "nats/token",
    "accuracy": "share of target words (end mark included) that are likeliest, given the right ones before them",
    "unigram": "every word by its frequency in the training targets",
    "curves": (TRAINING_LOSS, VALIDATION_LOSS, Panel("validation_accuracy", "validation token accuracy")),
}

TRANSLATION = TaskSpec(
    **WORD_BY_WORD,
    name="translation",
    Data=TranslationData,
    check_data=check_translation_data,
    check_model=check_one_vocabulary,
    ignores=(),
    main_score=MainScore("bleu", "BLEU"),
    test_score_name="bleu",
    also_compared=("chrf",),
    score_labels={
        "chrf": "chrF",
        "bleu_tokens": "BLEU of tokens",
        "bleu_references": "BLEU of the references joined again",
        "training_bleu": "Training BLEU",
        "validation_bleu": "Validation BLEU",
        "training_imi": "Training IMI",
    },
    curves_caption="Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of "
    "target words that are likeliest) after each epoch; dashed: what word frequencies alone give.",
    example_noun="pairs",
    batch_unit="target tokens",
    sides=("source", "target"),
    texts=("source", "target"),
    output="translation",
)


# ---- summarisation


def check_summaries(config: SummarisationData, at: Place = ("data",), source: Source | None = None) -> None:
    """JSON lines, or the public archive."""
    cache.check_data(config, ["examples|archive"], at, source)


SUMMARISATION = TaskSpec(
    **WORD_BY_WORD,
    name="summarisation",
    Data=SummarisationData,
    check_data=check_summaries,
    main_score=MainScore("rougeL", "ROUGE-L"),
    test_score_name="rougeL",
    also_compared=("rouge1", "rouge2", "rougeLsum"),
    score_labels={"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeLsum": "ROUGE-Lsum"},
    curves_caption="Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of "
    "the summaries' words that are likeliest) after each epoch; dashed: what word frequencies alone give.",
    example_noun="articles",
    batch_unit="tokens of article and summary",
    cuts=(
        Cut("source_truncated_share", "articles", "document_words"),
        Cut("target_truncated_share", "summaries", "summary_words"),
    ),
    sides=("document", "summary"),
    texts=("document", "summary"),
    output="summary",
)


# ---- question answering


class SpanModelConfig(ModelConfig):
    """Sizes of the Transformer whose decoder scores every word of a passage as the first and the last of the answer."""

    @model_validator(mode="after")
    def _no_words_to_tie(self) -> SpanModelConfig:
        if self.tied_output:
            raise ValueError("tied_output: expected false, as the two outputs of question answering are not words")
        if self.tied:
            raise ValueError("tied: expected none, as the two outputs of question answering are not words")
        return self


class SpanConfig(Settings):
    """How an answer is chosen in its passage."""

    max_answer_words: int = Field(30, ge=1, description="longest answer")


def check_examples(config: DataConfig, at: Place = ("data",), source: Source | None = None) -> None:
    """Files for each split."""
    cache.check_data(config, ["examples"], at, source)


QUESTION_ANSWERING = TaskSpec(
    name="qa",
    Data=QAData,
    Model=SpanModelConfig,
    Decode=SpanConfig,
    check_data=check_examples,
    unit="nats/answer",
    accuracy="share of questions whose first gold answer's first and last word are both the likeliest",
    unigram="first and last word by the frequency of their positions among the training answers",
    main_score=MainScore("f1", "F1"),
    test_score_name="f1",
    also_compared=("em",),
    score_labels={"em": "Exact match"},
    curves=(TRAINING_LOSS, VALIDATION_LOSS, Panel("validation_accuracy", "validation accuracy of whole spans")),
    curves_caption="Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of "
    "questions whose first and last word are both likeliest) after each epoch; dashed: what the frequencies of "
    "positions alone give.",
    example_noun="questions",
    batch_unit="tokens of passages",
    cuts=(Cut("target_truncated_share", "passages", "context_words"),),
    mentioned={
        "answers_cut_off": "Answers after the cut (not learnt from, but scored)",
        "answers_not_on_word_borders": "Answers that do not begin and end with a word (whole words are learnt)",
    },
    sides=("question", "passage"),
    texts=("passage", "question"),
    second_is_input=True,
    output="answer",
)


# ---- language modelling


class TimingConfig(Settings):
    """How the time of inference is measured: greedy, one text, keys and values cached."""

    prompt_tokens: int = Field(16, ge=1, description="tokens read before the clock starts")
    new_tokens: int = Field(64, ge=1, description="tokens written and timed")


def check_text(config: LMData, at: Place = ("data",), source: Source | None = None) -> None:
    """Files of one's own, or the toy; the mixture's sources must be SlimPajama's."""
    check_examples(config, at, source)
    for name in config.mixture or {}:
        if name not in SLIMPAJAMA:
            raise config_error((*at, "mixture", name), f"unknown source{nearest(name, list(SLIMPAJAMA))}", source)


def _perplexity_by(predicted: str) -> dict[str, Any]:
    """What tasks on running text share; ``predicted``: the kind of token that they predict."""
    panel = Panel("validation_nll", "validation perplexity", f"by {predicted}", perplexity=True, unigram=True)
    return {
        "Model": LMConfig,
        "check_data": check_text,
        "ignores": ("batching", "epoch_scores", "share"),
        "main_score": MainScore("perplexity", "Perplexity", better="lower"),  # of validation, as papers report it
        "test_score_name": "test_perplexity",
        "score_labels": {"inference_ms": "Inference time"},
        "curves": (TRAINING_LOSS, panel),
        "curves_caption": "Training loss (mean over an epoch, dropout on) and validation perplexity per "
        f"{predicted}, on a logarithmic axis, after each epoch; dashed: what token frequencies alone give.",
        "example_noun": "documents",
    }


LANGUAGE_MODELLING = TaskSpec(
    **_perplexity_by("token"),
    name="lm",
    Data=LMData,
    Decode=TimingConfig,
    unit="nats/token",
    accuracy="share of tokens that are the likeliest, given those before them",
    unigram="every token by its frequency in the documents that the tokeniser is trained on",
    output="goes on",
    predicts_text=True,
)
MASKED_LANGUAGE_MODELLING = TaskSpec(
    **_perplexity_by("masked token"),
    name="mlm",
    Data=MLMData,
    Decode=Settings,  # without keys: each mask token is filled in on its own
    unit="nats/masked token",
    accuracy="share of masked tokens that are the likeliest, given all around them",
    unigram="every masked token by its frequency in the documents that the tokeniser is trained on",
    output="filled-in text",
)

SPECS = {
    spec.name: spec
    for spec in (TRANSLATION, SUMMARISATION, QUESTION_ANSWERING, LANGUAGE_MODELLING, MASKED_LANGUAGE_MODELLING)
}
