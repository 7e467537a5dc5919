"""`hwsim reproduce`: what it writes as JSON."""

from hwsim_lab.papers import anchor_data, anchors


def test_reproduce_writes_numbers_that_json_cannot_hold_as_null(cli, monkeypatch):
    data = anchor_data.read()
    small = next(times for times in data.times if times.format == "fp16")
    small = small.model_copy(update={"us": {"64x64x64": 2.0}})  # no large ones: their mean is NaN
    sets = [(small, anchors.Spread((("64x64x64", 0.5),), (("64x64x64", -0.25),)))]
    monkeypatch.setattr(anchors, "rows", lambda _: [])
    monkeypatch.setattr(anchors, "sets", lambda _: sets)
    done = cli("reproduce", "cycles", "--json")
    assert done.code == 0 and "NaN" not in done.out
    (point,) = done.json["points"]
    assert (point["mean_absolute_error"], point["mean_absolute_error_cut"]) == (0.5, 0.25)
    assert point["mean_absolute_error_large"] is None and point["mean_absolute_error_large_cut"] is None
