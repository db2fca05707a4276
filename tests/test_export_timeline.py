"""Timelines: what is drawn where, read back with the readers that there are."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
from support import reading
from support.logs import DATA, EXAMPLE, any_logs, simulate, temporary_log, write_log

from otel_rollout_trace.events import Event
from otel_rollout_trace.exporting.chrome import ChromeCanvas
from otel_rollout_trace.exporting.lanes import Lane, Lanes
from otel_rollout_trace.exporting.perfetto import PerfettoCanvas
from otel_rollout_trace.exporting.timeline import Timeline
from otel_rollout_trace.replaying import Replayed, replay_into

KILLED = DATA / "killed_and_restored.jsonl"


Track = tuple[str, ...]


@dataclass
class Drawn:
    """A timeline as it was read back, times in microseconds, tracks by run and name.

    Attributes:
        slices: track, name, start, end, details; in order of time.
        instants: the same, without an end.
        values: of each counter, time and value.
        arrows: from where and when to where and when each goes.
        tracks: the names of each run's tracks.
    """

    slices: list[tuple[Track, str, int, int, dict[str, Any]]] = field(default_factory=list)
    instants: list[tuple[Track, str, int, dict[str, Any]]] = field(default_factory=list)
    values: dict[Track, list[tuple[int, float]]] = field(default_factory=dict)
    arrows: list[tuple[Track, int, Track, int]] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)

    def of(self, last: str) -> list[tuple[Track, str, int, int, dict[str, Any]]]:
        """The slices on tracks whose name begins so."""
        return [each for each in self.slices if each[0][-1].startswith(last)]

    def sorted(self) -> Drawn:
        """The same in one order, for comparing."""

        def ordered(items: list[Any]) -> list[Any]:
            return sorted(items, key=repr)

        values = {track: sorted(points) for track, points in self.values.items() if points}
        return Drawn(ordered(self.slices), ordered(self.instants), values, ordered(self.arrows), [])


def perfettos(content: bytes) -> Drawn:
    """A Perfetto trace, read as its trace processor does: by time, then as in the file."""
    trace = protos.Trace.FromString(content)
    drawn = Drawn()
    paths: dict[int, Track] = {}
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in paths
            paths[track.uuid] = (*paths.get(track.parent_uuid, ()), track.name)
            drawn.tracks.append(paths[track.uuid])
            if track.HasField("counter"):
                drawn.values[paths[track.uuid]] = []
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    open_on: dict[int, list[Any]] = defaultdict(list)
    starts: dict[int, tuple[Track, int]] = {}
    ends: list[tuple[int, Track, int]] = []
    for packet in sorted(events, key=lambda packet: packet.timestamp):
        event, time = packet.track_event, packet.timestamp // 1000
        assert packet.timestamp % 1000 == 0
        path, on = paths[event.track_uuid], open_on[event.track_uuid]
        details = {each.name: _annotated(each) for each in event.debug_annotations}
        if event.type == event.TYPE_SLICE_BEGIN:
            assert not on, "nothing overlaps on a track, and nothing is nested by chance"
            on.append((event.name, time, details))
            starts.update(dict.fromkeys(event.flow_ids, (path, time)))
            ends.extend((flow, path, time) for flow in event.terminating_flow_ids)
        elif event.type == event.TYPE_SLICE_END:
            name, started, details = on.pop()
            drawn.slices.append((path, name, started, time, details))
        elif event.type == event.TYPE_INSTANT:
            drawn.instants.append((path, event.name, time, details))
        else:
            value = event.WhichOneof("counter_value_field")
            drawn.values[path].append((time, getattr(event, value)))
    assert not any(open_on.values())
    drawn.arrows = [(*starts[flow], path, time) for flow, path, time in ends if flow in starts]
    return drawn


def _annotated(annotation: Any) -> Any:
    if annotation.array_values:
        return [_annotated(item) for item in annotation.array_values]
    kind = annotation.WhichOneof("value")
    return getattr(annotation, kind) if kind is not None else []


def chromes(content: bytes) -> Drawn:
    """Trace events, which a viewer sorts too."""
    document = json.loads(content)
    assert document["displayTimeUnit"] == "ms"
    drawn = Drawn()
    runs: dict[int, str] = {}
    tracks: dict[tuple[int, int], str] = {}
    flows: dict[str, tuple[Track, int]] = {}
    ends = []
    by_track: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in document["traceEvents"]:
        kind, pid, tid = event["ph"], event["pid"], event.get("tid")
        if kind == "M":
            if event["name"] == "process_name":
                runs[pid] = event["args"]["name"]
            elif event["name"] == "thread_name":
                tracks[pid, tid] = event["args"]["name"]
                drawn.tracks.append((runs[pid], event["args"]["name"]))
            continue
        assert type(event["ts"]) is int
        if kind == "C":
            points = drawn.values.setdefault((runs[pid], event["name"]), [])
            points.append((event["ts"], event["args"]["value"]))
            continue
        path = (runs[pid], tracks[pid, tid])
        if kind == "X":
            ended = event["ts"] + event["dur"]
            assert event["dur"] >= 0
            by_track[pid, tid].append((event["ts"], ended))
            drawn.slices.append((path, event["name"], event["ts"], ended, event["args"]))
        elif kind == "i":
            drawn.instants.append((path, event["name"], event["ts"], event["args"]))
        elif kind == "s":
            flows[event["id"]] = (path, event["ts"])
        else:
            assert (kind, event["bp"]) == ("f", "e")
            ends.append((event["id"], path, event["ts"]))
    for spans in by_track.values():
        for (_, ended), (started, _) in zip(sorted(spans), sorted(spans)[1:], strict=False):
            assert ended <= started
    drawn.arrows = [(*flows[flow], path, time) for flow, path, time in ends if flow in flows]
    return drawn


FORMATS: dict[str, tuple[Callable[[Any], Any], Callable[[bytes], Drawn]]] = {
    "perfetto": (PerfettoCanvas, perfettos),
    "chrome": (ChromeCanvas, chromes),
}
_EVERY_FORMAT = pytest.mark.parametrize("name", FORMATS)


def drawn_by(name: str, log: Path) -> tuple[Drawn, Timeline, Replayed]:
    """A log's timeline as it is read back, what drew it, and what was found."""
    canvas, read = FORMATS[name]
    file = io.BytesIO()
    timeline = Timeline(canvas(file))
    found = replay_into(log, timeline, listeners=timeline.begin(log))
    timeline.close()
    return read(file.getvalue()), timeline, found


def flat(path: Track) -> Track:
    """A track's path in a format that has two levels only."""
    return (path[0], path[-1])


@settings(max_examples=30)
@given(any_logs().filter(bool))
def test_whatever_the_log_both_formats_draw_all_of_it(events: list[Event]) -> None:
    with temporary_log(events) as path:
        one, timeline, found = drawn_by("perfetto", path)
        other, _, _ = drawn_by("chrome", path)
    assert len(one.of("attempts")) == timeline.written["attempts"] == sum(found.attempts.values())
    assert len(one.of("groups, lane")) == timeline.written["groups"] == sum(found.groups.values())
    one.slices = [(flat(path), *rest) for path, *rest in one.slices]  # type: ignore[misc]
    one.instants = [(flat(path), *rest) for path, *rest in one.instants]  # type: ignore[misc]
    one.arrows = [(flat(a), t, flat(b), u) for a, t, b, u in one.arrows]
    assert one.sorted() == other.sorted()


@_EVERY_FORMAT
@pytest.mark.parametrize("path", [EXAMPLE, KILLED], ids=lambda path: path.stem)
def test_attempts_and_groups_are_where_the_log_says(name: str, path: Path) -> None:
    said, (drawn, _, _) = reading.read(path), drawn_by(name, path)

    def times(each: Any) -> tuple[int, int]:
        return each.started // 1000, each.ended // 1000

    attempts = Counter(
        (f"run {run}", attempt_id, *times(each), each.outcome, each.reason or None)
        for (run, _, attempt_id), each in said.attempts.items()
    )
    assert attempts == Counter(
        (track[0], of["rl.attempt.id"], start, end, of["rl.outcome"], of.get("rl.reason"))
        for track, _, start, end, of in drawn.of("attempts")
    )
    groups = Counter(
        (f"run {run}", group_id, *times(each), each.outcome, f"prompt {each.prompt_id}")
        for (run, group_id), each in said.groups.items()
        if each.prompt_id is not None
    )
    assert groups == Counter(
        (track[0], of["rl.group.id"], start, end, of["rl.outcome"], label)
        for track, label, start, end, of in drawn.of("groups, lane")
        if label != "group"
    )


@_EVERY_FORMAT
@pytest.mark.parametrize("path", [EXAMPLE, KILLED], ids=lambda path: path.stem)
def test_steps_and_refits_are_instants_and_batch_age_is_a_counter(name: str, path: Path) -> None:
    said, (drawn, _, _) = reading.read(path), drawn_by(name, path)
    for track, event in (("steps", "rl.step"), ("refits", "rl.refit")):
        assert Counter(
            (of_run[0], time) for of_run, _, time, _ in drawn.instants if of_run[1:] == (track,)
        ) == Counter(
            (f"run {run}", time // 1000)
            for run, events in said.run_events.items()
            for time, what in events
            if what == event
        )
    ages = {
        time: value
        for track, points in drawn.values.items()
        if track[1] == "batch age"
        for time, value in points
    }
    steps = {
        time: (label, of.get("rl.batch_age"))
        for track, label, time, of in drawn.instants
        if track[1] == "steps"
    }
    for time, (label, age) in steps.items():
        assert ages.get(time) == age
        number = int(label.removeprefix("step "))
        # One that is trained again after a stop has another age.
        if list(said.batch_age).count(number) == 1 and path == EXAMPLE:
            assert age == pytest.approx(said.batch_age[number])


@_EVERY_FORMAT
@pytest.mark.parametrize("path", [EXAMPLE, KILLED], ids=lambda path: path.stem)
def test_every_value_in_flight_is_right_at_its_time(name: str, path: Path) -> None:
    said, (drawn, _, _) = reading.read(path), drawn_by(name, path)
    for track, points in drawn.values.items():
        if track[1] not in ("attempts in flight", "groups open"):
            continue
        items: Any = said.attempts if track[1].startswith("attempts") else said.groups
        spans = [
            (each.started // 1000, each.ended // 1000)
            for each in items.values()
            if f"run {each.run}" == track[0]
        ]
        assert points
        for time, value in points:
            begun = sum(started <= time for started, _ in spans)
            assert value == begun - sum(ended <= time for _, ended in spans)
        assert points[-1][1] == 0


@_EVERY_FORMAT
def test_arrows_lead_to_attempts_that_go_on_from_others(name: str) -> None:
    said, (drawn, _, _) = reading.read(KILLED), drawn_by(name, KILLED)
    resumed = [each for each in said.attempts.values() if each.resumes]
    assert len(drawn.arrows) == len(resumed) > 10
    by_span = {each.span_id: each for each in said.attempts.values()}
    assert Counter((a[0], t, b[0], u) for a, t, b, u in drawn.arrows) == Counter(
        (
            f"run {by_span[span_id].run}",
            by_span[span_id].started // 1000,
            f"run {each.run}",
            each.started // 1000,
        )
        for each in resumed
        for _, span_id in each.resumes
    )


def _day(groups: int, at_once: int, generations: int = 4) -> Iterator[Event]:
    """Many groups, so many of them open at once."""
    micros = 1_790_000_000_000_000

    def event(name: str, **fields: Any) -> Event:
        nonlocal micros
        micros += 1_000
        return {"t": micros / 1e6, "run": "a" * 32, "event": name, **fields}

    for number in range(groups + at_once):
        if number >= at_once:
            done = f"g{number - at_once}"
            for generation in range(generations):
                yield event("attempt_sealed", attempt_id=f"{done}/{generation}", tokens=7)
            yield event("group_discarded", group_id=done)
        if number < groups:
            ids = {"group_id": f"g{number}"}
            yield event("group_reserved", **ids, prompt_id=number)
            for generation in range(generations):
                yield event("attempt_dispatched", **ids, attempt_id=f"g{number}/{generation}")


@_EVERY_FORMAT
def test_there_are_as_many_lanes_as_groups_were_open(name: str, tmp_path: Path) -> None:
    """However many groups and attempts there were."""
    path = write_log(tmp_path / "log.jsonl", _day(400, at_once=8))
    drawn, timeline, _ = drawn_by(name, path)
    assert timeline.written["attempts"] == 1_600
    lanes = Counter(track[-1].split(",")[0] for track in drawn.tracks)
    assert (lanes["groups"], lanes["attempts"]) == (8, 32)


def test_perfetto_knows_the_date_and_what_is_below_what() -> None:
    file = io.BytesIO()
    timeline = Timeline(PerfettoCanvas(file))
    replay_into(EXAMPLE, timeline, listeners=timeline.begin(EXAMPLE))
    trace = protos.Trace.FromString(file.getvalue())
    [clocks] = [
        {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
        for packet in trace.packet
        if packet.HasField("clock_snapshot")
    ]
    assert clocks[1] == clocks[6] and clocks[1] // 10**9 in range(1_790_000_000, 1_790_000_009)
    drawn = perfettos(file.getvalue())
    run = "run 5f0c1e7a9b3d4c2e8a6f0b1d2c3e4f50"
    assert drawn.tracks[0] == (run,)
    assert (run, "groups, lane 1", "attempts") in drawn.tracks


def test_a_group_that_ends_before_its_attempts_keeps_its_lane(tmp_path: Path) -> None:
    def event(t: int, name: str, **fields: Any) -> Event:
        return {"t": 1_790_000_000.0 + t, "run": "a" * 32, "event": name, **fields}

    events = [
        event(0, "attempt_dispatched", group_id="g1", attempt_id="a1"),
        event(1, "group_discarded", group_id="g1"),
        event(2, "attempt_dispatched", group_id="g2", attempt_id="a2"),
        event(3, "attempt_sealed", attempt_id="a1"),
        event(4, "group_discarded", group_id="g2"),
        event(5, "attempt_dispatched", group_id="g3", attempt_id="a3"),
        event(6, "attempt_dispatched", group_id="g1", attempt_id="late"),
    ]
    drawn, _, _ = drawn_by("perfetto", write_log(tmp_path / "log.jsonl", events))
    lanes = {of["rl.attempt.id"]: track[1:] for track, _, _, _, of in drawn.of("attempts")}
    assert lanes == {
        "a1": ("groups, lane 1", "attempts"),
        "a2": ("groups, lane 2", "attempts"),
        "a3": ("groups, lane 1", "attempts"),
        "late": ("attempts without a group",),
    }


def test_half_a_surrogate_pair_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(EXAMPLE.read_text().replace('"timeout"', '"\\ud800"'))
    for name in FORMATS:
        assert len(drawn_by(name, path)[0].slices) == 4


class TestLanes:
    def test_the_first_that_is_free_is_taken(self) -> None:
        """So that few are used, and the upper ones most."""
        lanes: Lanes[int] = Lanes(lambda number: number)
        first, second, third = (lanes.take(0) for _ in range(3))
        lanes.give_back(third, 5)
        lanes.give_back(first, 5)
        assert lanes.take(5) is first
        assert [lane.what for lane in (first, second, third, lanes.take(9))] == [0, 1, 2, 2]

    def test_one_is_not_taken_for_a_time_when_something_was_on_it(self) -> None:
        """Clocks step back, and a viewer goes by time."""
        lanes: Lanes[int] = Lanes(lambda number: number)
        lane = lanes.take(10)
        lanes.give_back(lane, 20)
        other: Lane[int] = lanes.take(15)
        assert other is not lane
        assert lanes.take(20) is lane


@_EVERY_FORMAT
def test_two_logs_are_side_by_side(name: str, tmp_path: Path) -> None:
    canvas, read = FORMATS[name]
    file = io.BytesIO()
    timeline = Timeline(canvas(file))
    other = write_log(tmp_path / "log.jsonl", simulate(1))
    for log in (EXAMPLE, other):
        replay_into(log, timeline, listeners=timeline.begin(log))
    timeline.close()
    assert len({track[0] for track in read(file.getvalue()).tracks}) == 3
