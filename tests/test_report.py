"""The report: one page that says what `cost` and `batch-age` say, and lets nothing else in."""

from __future__ import annotations

import base64
import re
import struct
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.logs import SAMPLES, any_logs, simulate, simulations, temporary_log, write_log
from support.pages import HtmlPage

from otel_rollout_trace import batch_age_by_step, read_events
from otel_rollout_trace.cost import FATES, cost_of
from otel_rollout_trace.cost.words import price_of
from otel_rollout_trace.events import Event
from otel_rollout_trace.journal import LogError
from otel_rollout_trace.report import collecting, default_output, write_report
from otel_rollout_trace.report.bounded import Binned, Thinned
from otel_rollout_trace.report.clock import Clock
from otel_rollout_trace.report.page import page_of
from otel_rollout_trace.report.sections import read_section
from otel_rollout_trace.report.timeline import pack
from otel_rollout_trace.sample import SAMPLE_LOG

PLOTLY = "/* Plotly */"

# A page is checked in some tenths of a second.
few = settings(max_examples=25)


def page_about(*logs: Path, run: str | None = None, title: str = "A report") -> HtmlPage:
    """The page, without Plotly's script, which takes a while to read."""
    sections = [read_section(log, run=run) for log in logs]
    return HtmlPage("".join(page_of(sections, title, PLOTLY)))


def figure(page: HtmlPage, name: str) -> dict[str, Any]:
    found: dict[str, Any] = page.figures[f"log-1-{name}-figure"]
    return found


def bars_of(page: HtmlPage) -> list[dict[str, Any]]:
    """The timeline's traces of attempts and groups."""
    return [trace for trace in figure(page, "timeline")["data"] if "texts" in trace.get("meta", {})]


def numbers(typed: dict[str, str]) -> list[float]:
    data = base64.b64decode(typed["bdata"])
    kind = {"f8": "d", "f4": "f"}[typed["dtype"]]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(kind)}{kind}", data))


class TestFigures:
    @few
    @given(simulations())
    def test_batch_ages_are_those_of_the_function(self, events: list[Event]) -> None:
        with temporary_log(events) as log:
            page = page_about(log)
        [line] = [t for t in figure(page, "batch-age")["data"] if t["name"] == "batch age"]
        drawn = dict(zip(line["x"], line["y"], strict=True))
        assert drawn == batch_age_by_step(events)

    @few
    @given(simulations())
    def test_parts_of_the_batch_age_add_up_to_it(self, events: list[Event]) -> None:
        with temporary_log(events) as log:
            page = page_about(log)
        generating, waiting, line = figure(page, "batch-age")["data"][:3]
        for one, other, age in zip(generating["y"], waiting["y"], line["y"], strict=True):
            assert one + other == pytest.approx(age)

    @pytest.mark.parametrize("log", [*SAMPLES, SAMPLE_LOG], ids=lambda path: path.stem)
    def test_prices_and_the_ledger_are_those_of_cost(self, log: Path) -> None:
        page = page_about(log)
        cost = cost_of(read_events(log))
        for stop in cost.stops:
            assert price_of(stop) in page.text
            assert f"{stop.tokens_lost:,} tokens" in page.text
            assert f"{stop.tokens_trained_again:,}" in page.text
        drawn = {trace["name"]: trace["x"] for trace in figure(page, "ledger")["data"]}
        for fate in FATES:
            tokens = drawn.get(fate, [0])
            assert tokens[0] == cost.ledger.tokens[fate]
            assert tokens[1:] in ([], [run.ledger.tokens[fate] for run in cost.runs])

    @few
    @given(simulations())
    def test_token_ages_are_of_the_tokens_that_have_a_batch_age(self, events: list[Event]) -> None:
        with temporary_log(events) as log:
            page = page_about(log)
            ages = cost_of(read_events(log)).ages()
        [bars] = figure(page, "token-age")["data"]
        assert sum(bars["y"]) == sum(step.tokens for step in ages.values())
        if all(label.isdigit() for label in bars["x"]):
            sums = sum(int(age) * n for age, n in zip(bars["x"], bars["y"], strict=True))
            assert sums == pytest.approx(
                sum((step.batch_age or 0.0) * step.tokens for step in ages.values())
            )

    @few
    @given(simulations())
    def test_every_attempt_is_drawn_once_by_what_became_of_it(self, events: list[Event]) -> None:
        with temporary_log(events) as log:
            page = page_about(log)
        ids = Counter(
            event["attempt_id"]
            for event in events
            if event["event"] in ("attempt_dispatched", "attempt_resumed")
        )
        attempts = [trace["meta"] for trace in bars_of(page) if trace["meta"]["kind"] == "attempt"]
        assert Counter(one for meta in attempts for one in meta["id"]) == ids
        for outcome in ("sealed", "refused", "abandoned"):
            ended = [e["attempt_id"] for e in events if e["event"] == f"attempt_{outcome}"]
            drawn = [one for meta in attempts if meta["outcome"] == outcome for one in meta["id"]]
            assert Counter(drawn) == Counter(ended)
        ends = figure(page, "outcomes")["data"]
        assert sum(sum(trace["y"]) for trace in ends) == ids.total()

    @few
    @given(simulations())
    def test_nothing_is_in_flight_when_the_log_is_over(self, events: list[Event]) -> None:
        with temporary_log(events) as log:
            page = page_about(log)
        for trace in figure(page, "levels")["data"]:
            assert min(trace["y"]) == trace["y"][0] == trace["y"][-1] == 0
            assert trace["x"] == sorted(trace["x"])

    @few
    @given(simulations())
    def test_bars_of_one_lane_do_not_overlap(self, events: list[Event]) -> None:
        with temporary_log(events) as log:
            page = page_about(log)
        lanes: dict[tuple[str, float], list[tuple[float, float]]] = {}
        for trace in bars_of(page):
            x, y = numbers(trace["x"]), numbers(trace["y"])
            for low, high, lane in zip(x[::3], x[1::3], y[::3], strict=True):
                lanes.setdefault((trace["meta"]["kind"], lane), []).append((low, high))
        for spans in lanes.values():
            spans.sort()
            assert all(a[1] <= b[0] for a, b in pairwise(spans))

    def test_one_run_is_shown_alone(self, tmp_path: Path) -> None:
        log = write_log(tmp_path / "log.jsonl", simulate(4, runs=3))
        cost = cost_of(read_events(log))
        run = cost.runs[0].run
        page = page_about(log, run=run)
        assert price_of(cost.stops[0]) in page.text
        assert price_of(cost.stops[1]) not in page.text
        [trained] = [t for t in figure(page, "ledger")["data"] if t["name"] == "trained"]
        assert trained["x"] == [cost.ledger_of(run=run).tokens["trained"]]
        attempts = sum(sum(trace["y"]) for trace in figure(page, "outcomes")["data"])
        assert attempts == sum(cost.ledger_of(run=run).attempts.values())


class TestAnyLog:
    @few
    @given(any_logs())
    def test_it_has_a_page_that_is_well_formed(self, events: list[Event]) -> None:
        with temporary_log(events) as log:
            if not events:
                with pytest.raises(LogError):
                    page_about(log)
                return
            page = page_about(log)
        assert len(page.figures) == 6
        assert len(page.scripts) == 2

    @few
    @given(st.text(max_size=40), st.text(max_size=40))
    def test_any_text_is_only_text(self, name: str, reason: str) -> None:
        events = hostile_events(name, reason)
        with temporary_log(events) as log:
            page = page_about(log, title=name)
        with temporary_log(hostile_events("plain", "plain")) as log:
            plain = page_about(log, title="plain")
        assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]

    @pytest.mark.parametrize(
        "text",
        [
            "<script>window.hacked = 1</script>",
            "</script><script>window.hacked = 1</script>",
            "<!-- <script>",
            "]]>\u2028\u2029<img src=x onerror=alert(1)>",
            '"><b onmouseover="alert(1)">',
            "&lt;script&gt;",
            "\x00\x1b[31m a control",
            "{{7*7}} %{x} ${y}",
            "<a href='javascript:alert(1)'>here</a>",
        ],
    )
    def test_tags_in_a_log_are_shown_as_they_are(self, text: str, tmp_path: Path) -> None:
        log = write_log(tmp_path / "log.jsonl", hostile_events(text, text))
        output = tmp_path / "report.html"
        write_report([log], output, title=text)
        whole = output.read_text(encoding="utf-8")
        page = HtmlPage(whole)
        assert len(page.scripts) == 2
        assert all("onerror" not in attrs and "onmouseover" not in attrs
                   for _, attrs in page.elements)  # fmt: skip
        readable = text.isprintable()
        assert (text in page.text) is readable
        for trace in figure(page, "outcomes")["data"]:
            assert "<" not in trace["name"], "Plotly understands tags"


def hostile_events(name: str, reason: str) -> list[Event]:
    """A log in which everything that is free text is what somebody else chose."""
    run = "a" * 32

    def event(t: float, word: str, **fields: Any) -> Event:
        return {"t": 1.79e9 + t, "run": run, "event": word, **fields}

    group, attempt = name or "g", name or "a"
    ids = {"group_id": group, "attempt_id": attempt}
    return [
        event(0, "trace_opened", pid=1),
        event(1, "attempt_dispatched", **ids, prompt_id=f"{name}!", generation_index=name),
        event(2, "attempt_abandoned", **ids, reason=f"{reason}!", tokens=7),
        event(3, "group_discarded", group_id=group, reason=f"{reason}!"),
        event(4, "checkpoint_published", step=1, path=name),
        event(5, name or "note", note=reason),
    ]


class TestOffline:
    def test_nothing_refers_to_anywhere_else(self, tmp_path: Path) -> None:
        output = tmp_path / "report.html"
        write_report([SAMPLE_LOG], output)
        page = HtmlPage(output.read_text(encoding="utf-8"))
        for tag, attrs in page.elements:
            assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
            assert not {"src", "srcset", "action", "poster"} & attrs.keys()
            assert (attrs.get("href") or "#").startswith("#")
            assert not any(name.startswith("on") for name in attrs)
        plotly, own = page.scripts
        styles = [text for tag, _, text in page.code if tag == "style"]
        for text in (own, *styles, page.text, *(str(each) for each in page.figures.values())):
            assert not re.search(r"https?://|url\(|@import|\bfetch\(|XMLHttpRequest", text)
        assert len(plotly) > 1_000_000

    def test_the_policy_lets_only_its_own_scripts_in(self, tmp_path: Path) -> None:
        output = tmp_path / "report.html"
        write_report([SAMPLE_LOG], output)
        page = HtmlPage(output.read_text(encoding="utf-8"))
        [policy] = [
            attrs["content"] or ""
            for tag, attrs in page.elements
            if attrs.get("http-equiv") == "Content-Security-Policy"
        ]
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert "unsafe-inline" not in policy.split("style-src")[0]
        assert "connect-src" not in policy

    def test_every_plot_says_what_it_shows_without_being_seen(self) -> None:
        page = page_about(SAMPLE_LOG)
        plots = [attrs for _, attrs in page.elements if attrs.get("class") == "plot"]
        assert len(plots) == 6
        assert all(p["role"] == "img" and len(p["aria-label"] or "") > 40 for p in plots)
        for tag in ("figcaption", "details", "summary"):
            assert len([1 for name, _ in page.elements if name == tag]) == 6


class TestBounds:
    def test_a_page_says_what_it_leaves_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(collecting, "MOST_ATTEMPTS", 100)
        monkeypatch.setattr(collecting, "MOST_PROMPTS", 20)
        page = page_about(SAMPLE_LOG)
        assert "One of 8 attempts is drawn: 86 of 683" in page.text
        assert "Only the first 20 prompts of the log were followed" in page.text
        meta = [trace["meta"] for trace in bars_of(page) if trace["meta"]["kind"] == "attempt"]
        assert sum(len(each["id"]) for each in meta) == 86

    def test_reasons_of_free_text_are_counted_together(self, tmp_path: Path) -> None:
        run = "a" * 32
        events = [
            {"t": 1.79e9 + n, "run": run, "event": "attempt_abandoned", "group_id": "g",
             "attempt_id": f"a{n}", "reason": f"free text {n}"}
            for n in range(300)
        ]  # fmt: skip
        page = page_about(write_log(tmp_path / "log.jsonl", events))
        traces = figure(page, "outcomes")["data"]
        assert len(traces) <= collecting.MOST_REASONS + 4
        assert sum(sum(trace["y"]) for trace in traces) == 300

    @given(st.integers(1, 9), st.integers(0, 200))
    def test_thinning_keeps_every_nth_and_no_more_than_fit(self, most: int, number: int) -> None:
        thinned: Thinned[int] = Thinned(most)
        for item in range(number):
            thinned.add(item)
        assert thinned.items == list(range(0, number, thinned.every))
        assert len(thinned.items) <= most
        assert thinned.seen == number

    @given(st.integers(1, 9), st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from("ab"))))
    def test_sums_over_time_lose_nothing(self, most: int, added: list[tuple[int, str]]) -> None:
        binned: Binned[str] = Binned(most, 1)
        for time, key in added:
            binned.add(time, key)
        intervals = binned.intervals()
        assert len(intervals) <= most
        assert sum((Counter(sums) for _, sums in intervals), Counter()) == Counter(
            key for _, key in added
        )
        starts = {start for start, _ in intervals}
        assert all(time - time % binned.width in starts for time, _ in added)


SPANS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**4)).map(
        lambda pair: (float(pair[0]), float(pair[0] + pair[1]))
    ),
    max_size=30,
)


class TestAxes:
    @given(SPANS, st.lists(st.integers(-100, 10**6 + 10**5), min_size=2, max_size=20))
    def test_time_goes_on_along_the_axis(
        self, spans: list[tuple[float, float]], times: list[int]
    ) -> None:
        clock = Clock(spans)
        times.sort()
        places = [clock.at_seconds(time) for time in times]
        assert places == sorted(places)

    @given(SPANS)
    def test_while_something_ran_time_is_to_scale(self, spans: list[tuple[float, float]]) -> None:
        clock = Clock(spans)
        for first, last in spans:
            assert clock.at_seconds(last) - clock.at_seconds(first) == pytest.approx(last - first)

    @given(SPANS)
    def test_standing_still_takes_no_more_than_a_part_of_the_axis(
        self, spans: list[tuple[float, float]]
    ) -> None:
        clock = Clock(spans)
        if spans:
            assert clock.end <= max(clock.running, 1e-3) * 1.6 + 1

    @given(SPANS)
    def test_lanes_are_as_many_as_overlap(self, spans: list[tuple[float, float]]) -> None:
        spans = sorted((low, high + 1.0) for low, high in spans)
        lanes = pack(spans)
        most = max((sum(a <= low < b for a, b in spans) for low, _ in spans), default=0)
        assert len(set(lanes)) == most


class TestFiles:
    def test_it_is_named_after_the_log(self) -> None:
        assert default_output(Path("/x/run.jsonl.gz")) == Path("run.report.html")

    def test_several_logs_stand_one_after_another(self, tmp_path: Path) -> None:
        logs = [write_log(tmp_path / f"{n}.jsonl", simulate(n)) for n in (1, 2)]
        page = page_about(*logs)
        assert {"log-1", "log-2", "log-1-timeline", "log-2-timeline"} <= page.ids
        assert len(page.figures) == 12
        assert len(page.scripts) == 2

    def test_the_same_log_gives_the_same_bytes(self, tmp_path: Path) -> None:
        one = write_report([SAMPLE_LOG], tmp_path / "one.html", title="x")
        other = write_report([SAMPLE_LOG], tmp_path / "other.html", title="x")
        assert one.output.read_bytes() == other.output.read_bytes()
        assert one.size == one.output.stat().st_size < 6_000_000

    def test_where_it_fails_nothing_is_left(self, tmp_path: Path) -> None:
        (tmp_path / "no.jsonl").write_text("nothing\n")
        with pytest.raises(LogError):
            write_report([SAMPLE_LOG, tmp_path / "no.jsonl"], tmp_path / "report.html")
        assert [path.name for path in tmp_path.iterdir()] == ["no.jsonl"]

    def test_a_log_is_not_overwritten_by_its_page(self, tmp_path: Path) -> None:
        log = write_log(tmp_path / "log.jsonl", simulate(1))
        before = log.read_bytes()
        with pytest.raises(ValueError, match="is the log itself"):
            write_report([log], log, force=True)
        assert log.read_bytes() == before
