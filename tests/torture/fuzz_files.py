"""What is fuzzed through the command line: profiles and data files."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st
from mutations import Kind, change, damaged, several, structural
from processes import PROFILE, ROOT, make_home

from headdiv.companion.command_line import main
from headdiv.core.errors import HeaddivError


def command(arguments: list[str]) -> None:
    """A command of headdiv in this process; what would start another process or train is refused."""
    import socket
    import subprocess

    import papermill

    from headdiv.companion.experiments import bench, bench_library, halving
    from headdiv.companion.report import demo
    from headdiv.companion.report.site import build

    def refuse(*_: Any, **__: Any) -> Any:
        raise HeaddivError("the fuzzer starts no other process")

    def refuse_training(*_: Any, **__: Any) -> Any:
        raise HeaddivError("the fuzzer trains nothing")

    def no_network(*_: Any, **__: Any) -> Any:
        raise OSError(101, "Network is unreachable")

    subprocess.Popen.__init__ = refuse
    papermill.execute_notebook = refuse
    socket.socket.connect = socket.getaddrinfo = no_network
    bench.measure = bench_library.measure_library = demo.demo = refuse_training
    halving.train_until = refuse_training
    build._build = lambda source, folder, doctrees: folder.mkdir(parents=True)  # Sphinx takes ten seconds
    os.environ.pop("HEADDIV_MIRROR", None)
    sys.argv = ["headdiv", *arguments]
    main()


# ---- profiles: the text of one of config/, changed

CONFIGS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "config").glob("*.yaml"))} | {
    "torture": PROFILE.read_text(encoding="utf-8")
}


class _Plain(yaml.SafeDumper):
    """Writes surrogates too, as an editor's damage would."""


def changed_profile(name: str, changes: list[list[Any]]) -> bytes:
    """A profile's text after structural changes, and then changes of its characters."""
    text = CONFIGS[name]
    inside = [each for each in changes if each[0] in structural]
    if inside:
        content = yaml.safe_load(text)
        content = json.loads(json.dumps(content))  # aliases apart
        try:
            for each in inside:
                content = change(content, each)
            text = yaml.dump(content, Dumper=_Plain, sort_keys=False, allow_unicode=True)
        except (ValueError, RecursionError):  # what YAML cannot write
            text = json.dumps(content) if "deepen" not in [each[0] for each in inside] else "[" * 3000
    data = text.encode("utf-8", "surrogatepass")
    for each in changes:
        if each[0] not in structural and each[0] != "pack":
            data = damaged(data, each)
    return data


PROFILE_COMMANDS = (["plan"], ["params", "{experiment}"], ["cost", "{experiment}", "baseline"], ["summary"], ["check"])


def run_profile(home: Path, case: dict[str, Any]) -> None:
    """Write the profile, and ask what it says."""
    (home / "config" / "torture.yaml").write_bytes(changed_profile(case["profile"], case["changes"]))
    experiment = next((word for word in CONFIGS[case["profile"]].split() if word.count("/") == 1), "x/y:").rstrip(":")
    command([word.format(experiment=experiment) for word in case["command"]] + ["--profile", "torture"])


PROFILES = Kind(
    "profiles",
    st.fixed_dictionaries(
        {
            "profile": st.sampled_from(list(CONFIGS)),
            "changes": several(),
            "command": st.sampled_from([PROFILE_COMMANDS[0], *PROFILE_COMMANDS]),
        }
    ),
    run_profile,
    make_home,
)


# ---- data files

WORDS = "the a dog cat man woman runs sees eats big small red house tree and in , . ! é 12 3.5 don't U.S.".split()  # noqa: SIM905
TASKS: dict[str, dict[str, Any]] = {
    "translation": {
        "name": "own",
        "min_frequency": 1,
        "files": {split: {"en": f"{split}.en", "de": f"{split}.de"} for split in ("train", "valid", "test")},
    },
    "packed": {
        "name": "own",
        "min_frequency": 1,
        "merges": 20,
        "max_words": 9,
        "files": {split: {"en": f"{split}.en", "de": f"{split}.de"} for split in ("train", "valid", "test")},
    },
    "ted": {
        "name": "own",
        "min_frequency": 1,
        "files": {
            "train": {"en": "train.tags.en", "de": "train.tags.de"},
            "valid": {"en": "valid.xml", "de": "valid.xml"},
            "test": {"en": "test.xml", "de": "test.xml"},
        },
    },
    "qa": {
        "name": "own",
        "min_frequency": 1,
        "files": {split: f"{split}.json" for split in ("train", "valid", "test")},
    },
    "summarisation": {
        "name": "own",
        "min_frequency": 1,
        "document_words": 30,
        "summary_words": 9,
        "files": {split: f"{split}.jsonl" for split in ("train", "valid", "test")},
    },
    "lm": {
        "name": "own",
        "vocabulary_size": 300,
        "context": 16,
        "block": 4,
        "epoch_tokens": 200,
        "files": {split: [f"{split}.txt"] for split in ("train", "valid", "test")},
    },
    "shards": {
        "name": "own",
        "vocabulary_size": 300,
        "context": 16,
        "block": 4,
        "epoch_tokens": 200,
        "mixture": {"C4": 2.0, "ArXiv": 1.0},
        "files": {split: [f"{split}*.jsonl"] for split in ("train", "valid", "test")},
    },
    "tokenizer": {
        "name": "own",
        "tokenizer_file": "tokenizer.json",
        "vocabulary_size": 300,
        "context": 16,
        "block": 4,
        "epoch_tokens": 200,
        "files": {split: [f"{split}.txt"] for split in ("train", "valid", "test")},
    },
}
KIND = {"packed": "translation", "ted": "translation", "shards": "lm", "tokenizer": "lm"}
FILES = {  # of each task, the files that its profile names
    "translation": ["train.en", "train.de", "valid.en", "valid.de"],
    "packed": ["train.en", "train.de", "valid.en"],
    "ted": ["train.tags.en", "train.tags.de", "valid.xml", "test.xml"],
    "qa": ["train.json", "valid.json", "test.json"],
    "summarisation": ["train.jsonl", "valid.jsonl", "test.jsonl"],
    "lm": ["train.txt", "valid.txt", "test.txt"],
    "shards": ["train-1.jsonl", "valid.jsonl"],
    "tokenizer": ["tokenizer.json", "train.txt"],
}


def data_files(home: Path) -> None:
    """A project with small files in every form that is read, for each task."""
    make_home(home)
    rng = random.Random(1)

    def text(words: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(words))

    for task in TASKS:
        folder = home / task
        folder.mkdir()
        for split, count in (("train", 40), ("valid", 6), ("test", 6)):
            lines = "\n".join(text(rng.randint(3, 9)) for _ in range(count)) + "\n"
            for language in ("en", "de"):
                (folder / f"{split}.{language}").write_text(lines)
                talk = f"<url>http://x</url>\n<talkid>1</talkid>\n<title>{text(3)}</title>\n{lines}</reviewer>\n"
                (folder / f"{split}.tags.{language}").write_text(talk)
            segments = "".join(f'<seg id="{n}"> {text(5)} </seg>\n' for n in range(1, 7)).replace("&", "")
            (folder / f"{split}.xml").write_text(
                f'<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<srcset setid="s" srclang="any">\n<doc docid="1">\n'
                f"{segments}</doc>\n</srcset>\n</mteval>\n"
            )
            passages = [text(12) for _ in range(count // 2)]
            asked = [
                {
                    "context": passage,
                    "qas": [
                        {
                            "id": f"{split}{n}",
                            "question": text(5),
                            "answers": [
                                {"text": passage.split()[2], "answer_start": passage.index(passage.split()[2])}
                            ],
                        }
                    ],
                }
                for n, passage in enumerate(passages)
            ]
            squad = {"version": "1.1", "data": [{"title": "t", "paragraphs": asked}]}
            (folder / f"{split}.json").write_text(json.dumps(squad))
            records = [{"id": f"{split}{n}", "document": text(20), "summary": text(6)} for n in range(count)]
            (folder / f"{split}.jsonl").write_text("\n".join(json.dumps(record) for record in records))
            shard = [
                {"text": text(20), "meta": {"redpajama_set_name": f"RedPajama{('C4', 'ArXiv')[n % 2]}"}}
                for n in range(count)
            ]
            if task == "shards":
                (folder / f"{split}.jsonl").unlink()
                name = f"{split}-1.jsonl" if split == "train" else f"{split}.jsonl"
                (folder / name).write_text("\n".join(json.dumps(record) for record in shard))
            (folder / f"{split}.txt").write_text("\n\n".join(text(20) for _ in range(count)))
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(WORDS, vocab_size=290, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer.save(str(home / "tokenizer" / "tokenizer.json"))


def placed(settings: dict[str, Any], task: str, renamed: dict[str, str]) -> dict[str, Any]:
    """The settings with the files in the task's folder."""

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: named(one) for key, one in value.items()}
        return [named(one) for one in value] if isinstance(value, list) else f"{task}/{renamed.get(value, value)}"

    return settings | {key: named(settings[key]) for key in ("files", "tokenizer_file") if key in settings}


def run_data(home: Path, case: dict[str, Any]) -> None:
    """Change a file, and prepare the corpus."""
    task = case["task"]
    path = home / task / FILES[task][case["file"] % len(FILES[task])]
    data = path.read_bytes()
    for each in case["changes"]:
        data = damaged(data, each)
    path.write_bytes(data)
    if case["ending"]:
        path.rename(path.with_name(path.name + case["ending"]))
    settings = placed(TASKS[task], task, {path.name: path.name + case["ending"]})
    profile = yaml.safe_load(CONFIGS["torture"])
    kind = KIND.get(task, task)
    experiment = {
        "data": settings | {"strict": case["strict"]},
        "model": profile["experiments"][f"deacon/{kind}"]["model"],
    }
    for key in ("train", "decode"):
        experiment[key] = profile["experiments"][f"deacon/{kind}"][key]
    content = profile | {"experiments": {f"deacon/{kind}": experiment | {"variants": ["baseline"]}}}
    (home / "config" / "torture.yaml").write_text(yaml.safe_dump(content))
    command(["prepare", f"deacon/{kind}", "--profile", "torture"])


DATA = Kind(
    "data",
    st.fixed_dictionaries(
        {
            "task": st.sampled_from(list(TASKS)),
            "file": st.integers(0, 3),
            "changes": several(),
            "strict": st.booleans(),
            "ending": st.sampled_from(["", "", "", "", ".gz", ".zst"]),
        }
    ),
    run_data,
    data_files,
)
