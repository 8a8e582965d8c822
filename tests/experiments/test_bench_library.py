"""The library's benchmark times every part that has an aim."""

from headdiv.companion.experiments import bench_library


def test_every_aim_is_measured(monkeypatch):
    for name, size in (("B", 2), ("N", 8), ("D", 64), ("LAYERS", 1)):
        monkeypatch.setattr(bench_library, name, size)
    found = bench_library.measure_library(rounds=1, threads=1)
    assert bench_library.TARGETS.keys() <= {each.what for each in found}
    assert all(each.quartiles[0] <= each.median <= each.quartiles[1] for each in found)
    assert bench_library.library_table(found).count("\n") == len(found) + 1
