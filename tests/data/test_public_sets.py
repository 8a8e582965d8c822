"""The registry of data sets, and their download from a server on this machine and from the mirror."""

import gzip
import hashlib
import http.server
import random
import re
import threading
from types import SimpleNamespace

import pooch.core
import pytest
import yaml
from faulty import data_set, fails

from headdiv.companion.data import public_sets as registry
from headdiv.companion.data.public_sets import DataSet, fetch, load_registry
from headdiv.core.errors import ConfigError

BODY = random.Random(5).randbytes(30_000)
GOOD = hashlib.sha256(BODY).hexdigest()
OTHER = bytes(reversed(BODY))


def handler(state):
    """Answer each request by the next entry of ``state.plan``, bytes or a status; the last entry stays in force."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            answer = state.plan.pop(0) if len(state.plan) > 1 else state.plan[0]
            state.asked += 1
            if isinstance(answer, int):
                self.send_error(answer)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(answer)

    return Handler


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("HEADDIV_MIRROR", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(pooch.core.time, "sleep", lambda _: None)
    state = SimpleNamespace(plan=[BODY], asked=0)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(state)) as running:
        state.url = f"http://127.0.0.1:{running.server_port}/a.gz"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        know(monkeypatch, url=state.url, sha256=GOOD)
        yield state
        running.shutdown()
        thread.join()


def know(patch, **file):
    """The registry knows the set "toy" of one file."""
    entry = data_set({"a.gz": file}, {"train": (2, {"en": "a.gz"})})
    patch.setattr(registry, "load_registry", lambda: {"toy": DataSet.model_validate(entry)})


def names(folder):
    return sorted(path.name for path in (folder / "toy").iterdir())


def test_a_file_is_fetched_once_and_again_where_it_is_wrong(server, tmp_path):
    assert fetch("toy", tmp_path) == fetch("toy", tmp_path) == tmp_path / "toy"
    assert ((tmp_path / "toy" / "a.gz").read_bytes(), names(tmp_path), server.asked) == (BODY, ["a.gz"], 1)
    (tmp_path / "toy" / "a.gz").write_bytes(BODY[:-1])
    assert (fetch("toy", tmp_path) / "a.gz").read_bytes() == BODY


@pytest.mark.parametrize("bad", [503, BODY[:100], OTHER])
def test_what_goes_wrong_is_tried_again(server, tmp_path, bad):
    server.plan = [bad, BODY]
    assert (fetch("toy", tmp_path) / "a.gz").read_bytes() == BODY
    assert server.asked == 2


@pytest.mark.parametrize("bad", [404, OTHER])
def test_what_cannot_be_fetched_is_named_with_what_to_do(server, tmp_path, bad):
    server.plan = [bad]
    with fails(f"a.gz: could not be fetched from {server.url} (") as found:
        fetch("toy", tmp_path)
    assert "set HEADDIV_MIRROR to a folder that holds toy/a.gz" in str(found.value)
    assert names(tmp_path) == []


def test_what_is_set_wrong_is_named(server, tmp_path, monkeypatch):
    with fails("data set 'tory' is not known; did you mean 'toy'?"):
        fetch("tory", tmp_path)
    monkeypatch.setenv("HEADDIV_MIRROR", str(tmp_path / "none"))
    with fails(f"HEADDIV_MIRROR is set to {str(tmp_path / 'none')!r}, which is not a folder; correct it or unset it"):
        fetch("toy", tmp_path)


# ---- the mirror


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """The mirror's folder of the set."""
    folder = tmp_path / "mirror" / "toy"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HEADDIV_MIRROR", str(folder.parent))
    return folder


def test_what_the_mirror_lacks_is_fetched(server, copies, tmp_path):
    assert (fetch("toy", tmp_path) / "a.gz").read_bytes() == BODY
    assert server.asked == 1


@pytest.mark.parametrize("packed", [False, True])
def test_the_mirror_comes_first_and_may_be_packed(server, copies, tmp_path, packed):
    (copies / ("a.gz.gz" if packed else "a.gz")).write_bytes(gzip.compress(BODY) if packed else BODY)
    assert (fetch("toy", tmp_path) / "a.gz").read_bytes() == BODY
    assert server.asked == 0


@pytest.mark.parametrize(("name", "content"), [("a.gz", OTHER), ("a.gz.gz", gzip.compress(BODY)[:-9])])
def test_a_damaged_copy_in_the_mirror_is_named(server, copies, tmp_path, name, content):
    (copies / name).write_bytes(content)
    with fails(f"a.gz: could not be fetched from {copies / name} ("):
        fetch("toy", tmp_path)
    assert names(tmp_path) == []


# ---- the registry


def test_names_of_prepared_corpora_stay():
    known = load_registry()
    assert (
        known["iwslt14"].files["de-en.tgz"].identity == "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
    )
    squad = known["squad"].files["dev-v1.1.json"]
    assert squad.sha256 is not None
    assert squad.identity == "3e85deb501d4e538b6bc56f786231552"


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        (lambda entry: entry.update(colour="red"), "toy.colour", "unknown key"),
        (lambda entry: entry["files"]["a.gz"].update(url="ftp://x"), "toy.files.a.gz.url", "pattern"),
    ],
)
def test_a_wrong_entry_is_refused_by_file_line_and_key(tmp_path, change, where, what):
    content = data_set({"a.gz": {"url": "https://example.org/a.gz"}}, {"train": (2, {"en": "a.gz"})})
    change(content)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump({"toy": content}))
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(wrong))}, line \d+: {re.escape(where)}.*{what}"):
        load_registry(wrong)
