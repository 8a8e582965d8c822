"""What users' files and stored models name stays: options with their defaults, public names, parameters as they start.

Changes that are meant renew ``names.json`` and ``initialisation.json``: see `pins`.
"""

import hashlib
import json
from typing import Literal, get_args, get_origin

import pytest
import torch
from examples import CONFIG, EXAMPLES
from pins import in_lines, pinned
from pydantic import BaseModel
from pydantic_core import PydanticUndefined, to_jsonable_python
from small_runs import SMALL, small_config

import headdiv
from headdiv.companion.experiments.profile_file import Experiment, Profile
from headdiv.companion.experiments.running import build_model
from headdiv.companion.models.sizes import ModelConfig
from headdiv.companion.models.transformer import Transformer, initialise
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.methods import METHODS, make_method
from headdiv.training.config import TrainerConfig

ORTHOGONAL = ".w"  # end of the names of what a QR decomposition makes, which each processor rounds in its own way
SAME_BITS = ("AVX2", "AVX512")  # instruction sets with which torch draws the pinned values


def own(registry):
    """The built-in entries of a registry; other tests register theirs in this process."""
    entries = {name: entry if isinstance(entry, type) else type(entry) for name, entry in registry.items()}
    return {name: registry[name] for name, cls in entries.items() if cls.__module__.startswith("headdiv.")}


def parts_of(annotation):
    """The types that an annotation is made of."""
    yield annotation
    if get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from parts_of(part)


def option(name, field):
    """One option in words: name, default, what it may be where that is a list of words, whether it came later."""
    parts = list(parts_of(field.annotation))
    words = [repr(word) for part in parts if get_origin(part) is Literal for word in get_args(part)]
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        text = name
    else:
        text = f"{name} = {json.dumps(to_jsonable_python(default), ensure_ascii=False)}"
    return text + (f" of {' | '.join(words)}" if words else "") + (", later" if field.exclude_if else "")


def options_of(cls, known):
    """Enter the options of a class, and of the classes that they hold, in their order."""
    if known.setdefault(cls.__qualname__, found := [option(*item) for item in cls.model_fields.items()]) != found:
        raise AssertionError(f"two classes {cls.__qualname__} differ")
    for field in cls.model_fields.values():
        for part in parts_of(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                options_of(part, known)


def test_configuration_classes_and_their_options():
    found = {}
    for cls in (Profile, Experiment, RunConfig, TrainerConfig, TrainConfig):
        options_of(cls, found)
    for task in TASKS.values():
        for cls in (task.Data, task.Model, task.Decode):
            options_of(cls, found)
    assert in_lines(found) == in_lines(pinned("names.json", "configuration", found))


def test_methods_and_their_options():
    found = {}
    for name, method in own(METHODS).items():
        inner = {}
        options_of(method.Options, inner)
        first, *others = inner.items()
        found[name] = {"options": first[1]} | dict(others)
    assert in_lines(found) == in_lines(pinned("names.json", "methods", found))


def test_public_names():
    found = {
        "headdiv": list(headdiv.__all__),
        "headdiv.companion": list(headdiv.companion.__all__),
        "headdiv.pretrained": list(headdiv.pretrained.__all__),
        "tasks": {name: [c.__name__ for c in (task.Data, task.Model, task.Decode)] for name, task in TASKS.items()},
    }
    assert in_lines(found) == in_lines(pinned("names.json", "public", found))


def tensors_of(model):
    """Shape, SHA-256 and sum of the magnitudes of every parameter and buffer, by name."""
    found = {}
    for name, tensor in model.state_dict().items():
        shape, digest = "×".join(map(str, tensor.shape)), hashlib.sha256(tensor.contiguous().numpy().tobytes())
        found[name] = f"{shape or 1} {digest.hexdigest()[:16]} {tensor.double().abs().sum().item():.7g}"
    return found


def compare(key, found):
    """Hold tensors to their pins: to the bit where torch draws the same bits."""

    def exact(tensors):
        return {
            name: one.split()[: 2 if drawn and not name.endswith(ORTHOGONAL) else 1] for name, one in tensors.items()
        }

    def sums(tensors):
        return {name: float(one.split()[2]) for name, one in tensors.items()}

    pins, drawn = pinned("initialisation.json", key, found), torch.backends.cpu.get_cpu_capability() in SAME_BITS
    assert in_lines(exact(found)) == in_lines(exact(pins))
    assert sums(found) == pytest.approx(sums(pins), rel=1e-4)


@pytest.fixture(scope="module")
def plain():
    """The baseline as it starts."""
    model = Transformer(ModelConfig(**CONFIG.model_dump()), 15, 15, make_method({"name": "baseline"}))
    initialise(model, 1)
    return tensors_of(model)


def test_the_baseline_starts_as_it_did(plain):
    compare("baseline", plain)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "baseline"])
def test_every_method_starts_as_it_did(plain, name):
    """Where it differs from the baseline is pinned, and every other parameter is the baseline's."""
    for number, options in enumerate(EXAMPLES[name], start=1):
        model = Transformer(ModelConfig(**CONFIG.model_dump()), 15, 15, make_method(options))
        initialise(model, 1)
        found = tensors_of(model)
        changed = {key: one for key, one in found.items() if one != plain.get(key)}
        lacking = {key: "absent - 0" for key in plain if key not in found}
        compare(f"{name} {number}", lacking | changed)


@pytest.mark.parametrize("task", SMALL)
def test_every_tasks_model_starts_as_it_did(task):
    words = (15, 15) if task == "summarisation" else (15,)
    model, _ = build_model(small_config(task), words)
    compare(f"task {task}", tensors_of(model))
