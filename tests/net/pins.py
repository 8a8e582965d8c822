"""Values that must stay what they are, in JSON files beside the tests.

HEADDIV_UPDATE_GOLDEN=1 writes what is found in place of what is pinned: for a change that is meant, and says so in its
commit message.
"""

import json
import os
from pathlib import Path

from headdiv.core.files import read_json, write_json

UPDATE = bool(os.environ.get("HEADDIV_UPDATE_GOLDEN"))


def pinned(file, key, found):
    """What is pinned under ``key`` in a file of this folder; ``found`` itself where pins are written anew."""
    path = Path(__file__).with_name(file)
    pins = read_json(path) if path.is_file() else {}
    if UPDATE:
        pins = dict(sorted((pins | {key: json.loads(json.dumps(found))}).items()))
        write_json(path, pins)
    return pins.get(key)


def in_lines(value):
    """JSON in lines and in the order in which it was made, so that a difference shows the line, and order counts."""
    return json.dumps(value, indent=1, ensure_ascii=False).splitlines()
