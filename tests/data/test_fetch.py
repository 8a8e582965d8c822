"""The download of data sets, against a server on this machine that misbehaves on request."""

import gzip
import hashlib
import http.server
import logging
import random
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace

import pytest
from faulty import data_set, fails

from headdiv.companion.data import download as module
from headdiv.companion.data import public_sets as registry
from headdiv.companion.data.download import fetch
from headdiv.companion.data.public_sets import DataSet
from headdiv.core.errors import DataError

BODY = random.Random(5).randbytes(300_000)
GOOD = hashlib.sha256(BODY).hexdigest()
OTHER = bytes(reversed(BODY))


def handler(state):
    """Answer each request by the next entry of ``state.plan``; the last entry stays in force."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            mode = state.plan.pop(0) if len(state.plan) > 1 else state.plan[0]
            asked = self.headers.get("Range")
            state.ranges.append(asked)
            state.headers.append(dict(self.headers))
            self.close_connection = True
            if isinstance(mode, int):
                self.send_error(mode)
                return
            body = OTHER if mode == "corrupted" else BODY
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and mode != "ignores range" else 0
            rest, first = body[start:], 0 if mode == "wrong range" else start
            headers = {"Content-Length": len(rest), "Content-Encoding": "gzip" if mode == "labelled" else "identity"}
            if start:
                there = f"{first}-{len(body) - 1}" if rest else "*"
                headers["Content-Range"] = f"bytes {there}/{len(body)}"
            self.send_response((206 if rest else 416) if start else 200)
            for name, value in headers.items():
                self.send_header(name, str(value))
            self.end_headers()
            if mode in ("stalls", "pauses"):
                self.wfile.write(rest[:100_000])
                state.release.wait(5)
                if mode == "stalls":
                    return
                rest = rest[100_000:]
            rest = rest[: len(rest) // 2] if mode == "cut" else rest
            state.sent.append(len(rest))  # before the writing: the client may be done first
            self.wfile.write(rest)

    return Handler


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("HEADDIV_MIRROR", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(module, "PAUSE", 0)
    state = SimpleNamespace(plan=["ok"], ranges=[], headers=[], sent=[], release=threading.Event())
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(state)) as running:
        state.url = f"http://127.0.0.1:{running.server_port}/a.gz"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        state.release.set()
        running.shutdown()
        thread.join()


def get(server, folder, unverified=True, url=None, **checks):
    """Fetch the set "toy" of one file; its checksum is known unless ``checks`` says otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "load_registry", lambda: known(server, checks, url))
        return fetch("toy", folder, unverified)


def known(server, checks, url=None):
    """A registry with the set "toy" of one file, which has these checksums."""
    file = {"url": url or server.url, **(checks or {"sha256": GOOD})}
    return {"toy": DataSet.model_validate(data_set({"a.gz": file}, {"train": (2, {"en": "a.gz"})}))}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_once(server, tmp_path):
    path = get(server, tmp_path / "raw") / "a.gz"
    before = path.stat().st_mtime_ns
    assert get(server, tmp_path / "raw") == path.parent == tmp_path / "raw" / "toy"
    assert (path.read_bytes(), names(path.parent), path.stat().st_mtime_ns) == (BODY, ["a.gz"], before)
    assert server.ranges == [None]
    assert server.headers[0]["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("checks", [{"sha256": GOOD}, {"pin": True}])
def test_of_two_that_fetch_one_set_the_second_waits_and_finds_it(server, tmp_path, monkeypatch, checks):
    monkeypatch.setattr(registry, "load_registry", lambda: known(server, checks))
    server.plan = ["pauses", "ok"]
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(fetch, "toy", tmp_path, True) for _ in range(2)]
        assert not wait(both, 0.3).done
        server.release.set()
        assert [one.result(10) for one in both] == [tmp_path / "toy"] * 2
    assert (tmp_path / "toy" / "a.gz").read_bytes() == BODY
    assert server.ranges == [None]


@pytest.mark.parametrize("wrong", [BODY[:-1], b"", OTHER])
def test_a_wrong_file_in_place_is_fetched_again(server, tmp_path, caplog, wrong):
    path = tmp_path / "toy" / "a.gz"
    path.parent.mkdir()
    path.write_bytes(wrong)
    get(server, tmp_path)
    assert path.read_bytes() == BODY
    (message,) = [record.getMessage() for record in caplog.records]
    found = hashlib.sha256(wrong).hexdigest()
    assert message == (f"{path}: sha256 is {found}, expected {GOOD}; the file is deleted and fetched again")


def test_a_cut_connection_is_resumed_where_it_ended(server, tmp_path, caplog):
    server.plan = ["cut", "cut", "ok"]
    assert (get(server, tmp_path) / "a.gz").read_bytes() == BODY
    assert server.ranges == [None, "bytes=150000-", "bytes=225000-"]
    assert server.sent == [150_000, 75_000, 75_000]
    assert caplog.messages[0] == (f"a.gz: the connection broke off; next attempt at {server.url} in 0 s")


def leave_part(tmp_path, content):
    part = tmp_path / "toy" / "a.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content)


@pytest.mark.parametrize(
    ("plan", "part", "asked_again"),
    [
        (["ignores range"], BODY[:1000], False),
        (["ok"], b"x" * len(BODY), True),  # too long to be a beginning
        (["ok"], b"x" * (len(BODY) + 10), True),
        (["wrong range", "ok"], BODY[:1000], True),
        (["ok"], OTHER[:1000], True),
        (["labelled"], b"", False),  # as packed with gzip, which it is not to be unpacked for
    ],
)
def test_a_part_is_resumed_or_dropped(server, tmp_path, plan, part, asked_again):
    server.plan = plan
    leave_part(tmp_path, part)
    assert (get(server, tmp_path) / "a.gz").read_bytes() == BODY
    assert server.ranges == [f"bytes={len(part)}-" if part else None] + [None] * asked_again


FOUND = hashlib.sha256(OTHER).hexdigest()
MIRRORED = "or set HEADDIV_MIRROR to a folder that holds"


@pytest.mark.parametrize(
    ("plan", "asked", "words"),
    [
        (["corrupted"], 2, [f"a.gz: what {{url}} sends has the sha256 {FOUND}, expected {GOOD}", MIRRORED]),
        ([404], 1, ["a.gz: could not be fetched from {url} (the server answered 404 Not Found; attempts made: 1)"]),
        (["stalls"], 4, ["no answer within 0.2 s; attempts made: 4", MIRRORED]),
        ([], 0, ["(no connection; attempts made: 4); try again later", MIRRORED]),
    ],
)
def test_what_cannot_be_fetched_is_named_with_what_to_do(server, tmp_path, monkeypatch, plan, asked, words):
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    server.plan, url = plan, server.url
    if not plan:
        with socket.socket() as free:  # a port at which nobody listens
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}/a.gz"
    with pytest.raises(DataError) as found:
        get(server, tmp_path, url=url)
    assert all(word.format(url=url) in str(found.value) for word in words), str(found.value)
    assert len(server.ranges) == asked
    assert names(tmp_path / "toy") == ["a.gz.part"] * (plan == ["stalls"])  # the next try goes on from there
    server.plan = ["ok"]
    assert (get(server, tmp_path) / "a.gz").read_bytes() == BODY


def test_what_is_set_wrong_is_named(server, tmp_path, monkeypatch):
    with fails("data set 'multi31k' is not known; did you mean 'multi30k'?"):
        fetch("multi31k", tmp_path)
    (tmp_path / "toy").write_text("in the way")
    with fails(f"{tmp_path / 'toy' / 'a.gz'}: cannot be written (File exists)"):
        get(server, tmp_path)
    monkeypatch.setenv("HEADDIV_MIRROR", str(tmp_path / "none"))
    with fails(f"HEADDIV_MIRROR is set to {str(tmp_path / 'none')!r}, which is not a folder; correct it or unset it"):
        get(server, tmp_path)


def test_failures_of_the_server_are_tried_again_after_doubled_pauses(server, tmp_path, monkeypatch, caplog):
    pauses = []
    monkeypatch.setattr(module.time, "sleep", pauses.append)
    server.plan = [500, 429, 503, "ok"]
    assert (get(server, tmp_path / "a") / "a.gz").read_bytes() == BODY
    assert "the server answered 500 Internal Server Error" in caplog.messages[0]
    pauses.clear()
    monkeypatch.setattr(module, "PAUSE", 1.0)
    server.plan = [503]
    with fails("the server answered 503 Service Unavailable; attempts made: 4"):
        get(server, tmp_path)
    assert pauses == [1.0, 2.0, 4.0]


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    folder = tmp_path / "mirror"
    (folder / "toy").mkdir(parents=True)
    monkeypatch.setenv("HEADDIV_MIRROR", str(folder))
    return folder


def test_the_mirror_comes_first(server, mirror, tmp_path, caplog):
    (mirror / "toy" / "a.gz").write_bytes(BODY)
    leave_part(tmp_path, BODY[:7])
    assert (get(server, tmp_path) / "a.gz").read_bytes() == BODY
    assert server.ranges == []
    assert names(tmp_path / "toy") == ["a.gz"]
    assert caplog.messages == []


def test_a_copy_in_the_mirror_may_be_packed(server, mirror, tmp_path, caplog):
    packed = gzip.compress(BODY, compresslevel=1)
    (mirror / "toy" / "a.gz.gz").write_bytes(packed)
    assert (get(server, tmp_path) / "a.gz").read_bytes() == BODY
    assert server.ranges == []
    (mirror / "toy" / "a.gz.gz").write_bytes(packed[:-9])
    assert (get(server, tmp_path / "other") / "a.gz").read_bytes() == BODY
    assert server.ranges == [None]
    assert "a.gz.gz: the mirror's file cannot be read" in caplog.text
    assert names(tmp_path / "other" / "toy") == ["a.gz"]


def test_a_damaged_copy_in_the_mirror_is_named_and_passed_over(server, mirror, tmp_path, caplog):
    (mirror / "toy" / "a.gz").write_bytes(BODY[:-1])
    assert (get(server, tmp_path) / "a.gz").read_bytes() == BODY
    assert server.ranges == [None]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.name == "headdiv.companion.data.download"
    found = hashlib.sha256(BODY[:-1]).hexdigest()
    assert record.getMessage() == (
        f"{mirror / 'toy' / 'a.gz'}: the mirror's file is damaged, its sha256 is {found}, "
        f"expected {GOOD}; going on to {server.url}"
    )


# ---- without a published checksum


@pytest.mark.parametrize("checks", [{"pin": True}, {"md5": "0" * 32}])
def test_a_first_download_that_may_be_anybodys_is_refused(server, tmp_path, monkeypatch, checks):
    with fails(f"a.gz: the connection to {server.url} is not secured and no sha256 is known, so what comes may"):
        get(server, tmp_path, unverified=False, **checks)
    monkeypatch.setattr(module.requests, "get", lambda *_, **__: SimpleNamespace(url=server.url))  # sent on
    with fails(f"a.gz: the connection to {server.url} is not secured"):
        get(server, tmp_path, unverified=False, url="https://example.org/a.gz", **checks)
    assert server.ranges == []


def pin_of(folder):
    return folder / "toy" / "a.gz.sha256"


def test_the_first_download_is_pinned_and_later_ones_must_match(server, tmp_path, caplog):
    path = get(server, tmp_path, pin=True) / "a.gz"
    assert (path.read_bytes(), pin_of(tmp_path).read_text()) == (BODY, f"{GOOD}  a.gz\n")
    get(server, tmp_path, pin=True)
    assert len(server.ranges) == 1
    path.write_bytes(BODY[:-1])
    get(server, tmp_path, pin=True)
    assert path.read_bytes() == BODY
    path.unlink()
    server.plan = ["corrupted"]
    with fails(f"; {pin_of(tmp_path)} keeps the checksum of the first download, delete it to take another file"):
        get(server, tmp_path, pin=True)
    pin_of(tmp_path).unlink()
    assert (get(server, tmp_path, pin=True) / "a.gz").read_bytes() == OTHER


def test_the_mirrors_copy_is_pinned_and_must_match_too(server, mirror, tmp_path, caplog):
    (mirror / "toy" / "a.gz").write_bytes(BODY)
    path = get(server, tmp_path, pin=True) / "a.gz"
    assert (server.ranges, pin_of(tmp_path).read_text()) == ([], f"{GOOD}  a.gz\n")
    path.unlink()
    (mirror / "toy" / "a.gz").write_bytes(OTHER)
    assert (get(server, tmp_path, pin=True) / "a.gz").read_bytes() == BODY
    assert "the mirror's file is damaged" in caplog.text


def test_halves_of_unknown_files_are_not_put_together(server, tmp_path):
    leave_part(tmp_path, OTHER[:1000])
    assert (get(server, tmp_path, pin=True) / "a.gz").read_bytes() == BODY
    assert server.ranges == [None]


@pytest.mark.parametrize("content", ["", "what?", "0" * 63])
def test_a_damaged_pin_is_named(server, tmp_path, content):
    get(server, tmp_path, pin=True)
    pin_of(tmp_path).write_text(content)
    with fails(f"{pin_of(tmp_path)}: found {content!r}, expected the sha256 of a.gz; delete it to take the file as"):
        get(server, tmp_path, pin=True)
