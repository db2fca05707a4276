"""The report in a real browser: it draws, zooms, tells, prints, and asks for nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import CHROMIUM, Browser, Page, chromium
from support.large import busy_log
from support.logs import simulate, write_log

from otel_rollout_trace.report import write_report
from otel_rollout_trace.sample import SAMPLE_LOG

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium in the PATH, and none named by CHROMIUM"
    ),
]

TIMELINE = "document.querySelector('[id$=-timeline] .plot')"
DRAWN = "[...document.querySelectorAll('.plot')].every(box => box.dataset.drawn)"
TIP = "(tip => tip.hidden ? '' : tip.textContent)(document.querySelector('.tip'))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    tab = browser.new_page()
    yield tab
    tab.close()


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([SAMPLE_LOG], tmp_path_factory.mktemp("report") / "sample.html").output


def assert_quiet(page: Page, path: Path) -> None:
    """No complaint but those of a graphics card that is not there, and no request."""
    assert [each for each in page.complaints if "GL Driver Message" not in each] == []
    assert [url for url in page.requests if not url.startswith(("data:", "blob:"))] == [
        path.absolute().as_uri()
    ]


def draw_all(page: Page) -> None:
    """Scroll to each plot."""
    number = page.run("document.querySelectorAll('.plot').length")
    for place in range(number):
        box = f"document.querySelectorAll('.plot')[{place}]"
        page.run(f"{box}.scrollIntoView({{block: 'center'}})")
        page.wait_until(f"!!{box}.dataset.drawn")


def area_of(page: Page, panel: str = "xy") -> tuple[float, float, float, float]:
    """Left, top, width and height of a panel of the timeline, in the window."""
    selector = f".nsewdrag[data-subplot={panel}]"
    page.run(f"{TIMELINE}.querySelector('{selector}').scrollIntoView({{block: 'center'}})")
    # The page hears of the scrolling, and takes its tip away, only in the next frame.
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    rect: Any = page.run(
        f"(r => [r.left, r.top, r.width, r.height])"
        f"({TIMELINE}.querySelector('{selector}').getBoundingClientRect())"
    )
    left, top, width, height = rect
    return left, top, width, height


def show_timeline(page: Page, path: Path, **look: Any) -> None:
    page.look(**look)
    page.open(path)
    page.run(f"{TIMELINE}.scrollIntoView()")
    page.wait_until(f"!!{TIMELINE}.dataset.drawn")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_it_draws_everything_and_asks_for_nothing(
    page: Page, sample: Path, width: int, scheme: str
) -> None:
    page.look(width=width, scheme=scheme)
    page.open(sample)
    draw_all(page)
    assert page.run(DRAWN)
    assert page.run("(e => e.scrollWidth - e.clientWidth)(document.documentElement)") == 0
    # Something is drawn in each of them.
    marks = "'.trace, .gl-canvas, .point, .bars path'"
    assert page.run(
        f"[...document.querySelectorAll('.plot')].every(box => box.querySelector({marks}))"
    )
    assert page.run("!document.body.innerText.includes('WebGL is not supported')")
    assert_quiet(page, sample)


def test_colours_follow_what_the_reader_prefers(page: Page, sample: Path) -> None:
    ink = f"{TIMELINE}.layout.font.color"
    paper = "getComputedStyle(document.body).backgroundColor"
    show_timeline(page, sample, scheme="light")
    light = page.run(ink), page.run(paper)
    page.look(scheme="dark")
    page.wait_until(f"{ink} !== '{light[0]}'")
    dark = page.run(ink), page.run(paper)
    assert light == ("#1d232b", "rgb(255, 255, 255)")
    assert dark == ("#e6e9ee", "rgb(20, 24, 29)")


def test_it_says_what_is_under_the_pointer(page: Page, sample: Path) -> None:
    show_timeline(page, sample)
    left, top, width, height = area_of(page)
    said = set()
    for part in range(1, 40):
        page.mouse("mouseMoved", left + width * part / 40, top + height * 0.9)
        said.add(page.run(TIP))
    bars = sorted(said - {""})
    assert len(bars) > 5
    assert all(text.startswith("attempt ") and "of group " in text for text in bars)
    assert any("sealed" in text and " tokens" in text for text in bars)
    assert any("prompt " in text and "14:1" in text for text in bars)
    left, top, width, height = area_of(page, "xy2")
    page.mouse("mouseMoved", left + width * 0.03, top + height * 0.9)
    assert page.run(TIP).startswith("group ")
    page.mouse("mouseMoved", 5, 5)
    assert page.run(TIP) == ""


def test_plotly_says_what_a_step_was(page: Page, sample: Path) -> None:
    show_timeline(page, sample)
    left, top, width, height = area_of(page, "xy3")
    for x in range(int(left), int(left + width), 4):
        page.mouse("mouseMoved", x, top + height * 0.2)
        time.sleep(0.06)
        label = page.run(f"{TIMELINE}.querySelector('.hoverlayer').textContent")
        if "step" in label:
            assert "batch age" in label
            return
    raise AssertionError("no step says what it was")


def test_dragging_zooms_in_and_a_double_click_out(page: Page, sample: Path) -> None:
    show_timeline(page, sample)
    zoomed = f"JSON.stringify({TIMELINE}.layout.xaxis.range)"
    before, ticks = page.run(zoomed), page.run(f"{TIMELINE}.layout.xaxis.ticktext")
    left, top, width, height = area_of(page)
    page.drag(left + width * 0.1, top + height * 0.3, left + width * 0.2, top + height * 0.7)
    page.wait_until(f"{zoomed} !== '{before}'")
    low, high = page.run(f"{TIMELINE}.layout.xaxis.range")
    assert high - low < 15
    page.wait_until(f"{TIMELINE}.layout.xaxis.ticktext.join() !== {ticks!r}.join()")
    for kind in ("mousePressed", "mouseReleased") * 2:
        page.mouse(kind, left + width * 0.5, top + height * 0.5, held=kind == "mousePressed")
    page.wait_until(f"{zoomed} === '{before}'")


def test_a_button_shows_one_run(page: Page, sample: Path) -> None:
    show_timeline(page, sample)
    buttons = "[...document.querySelectorAll('button[data-range]')]"
    assert page.run(f"{buttons}.map(button => button.innerText)") == [
        "all",
        "run 1",
        "run 2",
        "run 3",
    ]
    page.run(f"{buttons}.at(-1).click()")
    page.wait_until(f"{TIMELINE}.layout.xaxis.range[0] > 30")
    page.run(f"{buttons}.at(0).click()")
    page.wait_until(f"{TIMELINE}.layout.xaxis.range[0] < 0")


def test_without_webgl_it_is_drawn_all_the_same(page: Page, sample: Path) -> None:
    page.call(
        "Page.addScriptToEvaluateOnNewDocument",
        source="const get = HTMLCanvasElement.prototype.getContext;"
        "HTMLCanvasElement.prototype.getContext = function (kind, ...more) {"
        "  return /webgl/.test(kind) ? null : get.call(this, kind, ...more); };",
    )
    show_timeline(page, sample)
    assert page.run(f"{TIMELINE}.querySelectorAll('.scatterlayer .trace').length") > 8
    assert page.run("!document.body.innerText.includes('WebGL is not supported')")
    assert_quiet(page, sample)


def test_it_prints_with_every_plot(page: Page, sample: Path) -> None:
    page.open(sample)
    page.look(scheme="dark")
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF") and len(pdf) > 50_000
    assert page.run("document.querySelectorAll('.plot .main-svg').length") > 6


def test_nothing_in_a_log_runs(page: Page, tmp_path: Path) -> None:
    bad = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
    events = [
        {name: bad + str(value) if name.endswith("_id") or name == "reason" else value
         for name, value in event.items()}
        for event in simulate(3)
        if event["event"] != "step_trained"
    ]  # fmt: skip
    log = write_log(tmp_path / "log.jsonl", events)
    path = write_report([log], tmp_path / "page.html", title=bad).output
    show_timeline(page, path)
    draw_all(page)
    left, top, width, height = area_of(page)
    for part in range(1, 20):
        page.mouse("mouseMoved", left + width * part / 20, top + height * 0.9)
    assert page.run("typeof window.hacked") == "undefined"
    assert page.run("document.querySelectorAll('main img').length") == 0
    assert_quiet(page, path)


def test_twenty_thousand_attempts_still_zoom(
    page: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_log(tmp_path / "log.jsonl", busy_log(20_000))
    report = write_report([log], tmp_path / "page.html")
    assert report.size < 12_000_000
    begun = time.monotonic()
    show_timeline(page, report.output)
    drawn = time.monotonic() - begun
    left, top, width, height = area_of(page)
    begun = time.monotonic()
    page.drag(left + width * 0.2, top + height * 0.4, left + width * 0.25, top + height * 0.5)
    page.wait_until(f"{TIMELINE}.layout.xaxis.range[1] < 500")
    zoomed = time.monotonic() - begun
    with capsys.disabled():
        sys.stdout.write(
            f"\n20,000 attempts: {report.size / 1e6:.1f} MB, timeline drawn {drawn:.1f} s after "
            f"opening the file, a zoom took {zoomed:.1f} s (without a graphics card)\n"
        )
    said = ""
    for part in range(1, 30):
        page.mouse("mouseMoved", left + width * part / 30, top + height * 0.55)
        said = said or page.run(TIP)
    assert said.startswith("attempt ")
    assert_quiet(page, report.output)
