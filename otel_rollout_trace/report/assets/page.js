// Draws the figures when they come into view, in the colours of the page, writes the ticks of
// cut time axes, and says what is under the pointer on a timeline.
(() => {
  "use strict";

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 560px)");
  const root = document.documentElement;
  const boxes = [...document.querySelectorAll(".plot")];
  const figures = new Map();

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const axes = (layout) => Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key));

  // What differs between light, dark and paper, as Plotly.relayout takes it.
  const inks = (layout) => {
    const changes = {
      "font.color": colour("--ink"),
      "hoverlabel.bgcolor": colour("--card"),
      "hoverlabel.bordercolor": colour("--line"),
      "hoverlabel.font.color": colour("--ink"),
      "modebar.bgcolor": "rgba(0,0,0,0)",
      "modebar.color": colour("--soft"),
      "modebar.activecolor": colour("--ink"),
    };
    for (const name of axes(layout)) {
      changes[name + ".gridcolor"] = colour("--grid");
      changes[name + ".linecolor"] = colour("--line");
      changes[name + ".tickcolor"] = colour("--line");
    }
    return changes;
  };

  const put = (layout, changes) => {
    for (const [path, value] of Object.entries(changes)) {
      const keys = path.split(".");
      const last = keys.pop();
      let at = layout;
      for (const key of keys) at = at[key] ??= {};
      at[last] = value;
    }
  };

  // Ticks of a clock: round times of day, wherever the pieces in view have them.

  const DAY = 86400;
  const STEPS = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
    900, 1800, 3600, 7200, 10800, 21600, 43200, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY,
    91 * DAY, 364 * DAY, 3640 * DAY,
  ];
  const timeOf = (pieces, x) => {
    const piece = pieces.findLast((each) => each[0] <= x) ?? pieces[0];
    const [x0, x1, t0, t1, cut] = piece;
    return cut ? t0 + ((x - x0) / (x1 - x0)) * (t1 - t0) : t0 + x - x0;
  };
  const clockText = (t, step) => {
    const text = new Date(Math.round(t * 1000)).toISOString();
    if (step >= DAY) return text.slice(0, 10);
    return text.slice(11, step < 1 ? 23 : step < 60 ? 19 : 16);
  };
  const ticks = (pieces, range, width) => {
    const [low, high] = range;
    const most = Math.max(2, Math.floor(width / 64));
    const step = STEPS.find((each) => (high - low) / each <= most) ?? STEPS.at(-1);
    const vals = [];
    const texts = [];
    let day = "";
    for (const [index, [x0, x1, t0, t1, cut]] of pieces.entries()) {
      if (cut || (x1 < low && index < pieces.length - 1) || x0 > high) continue;
      const from = Math.max(t0, t0 + low - x0);
      const to = Math.min(t1, t0 + high - x0);
      for (let k = Math.ceil(from / step - 1e-9); k * step <= to + 1e-9; k++) {
        const x = x0 + k * step - t0;
        if (vals.length && x - vals.at(-1) < ((high - low) / width) * 62) continue;
        const date = new Date(k * step * 1000).toISOString().slice(0, 10);
        vals.push(x);
        texts.push(clockText(k * step, step) + (date !== day && step < DAY ? "<br>" + date : ""));
        day = date;
        if (vals.length > 60) return { vals, texts };
      }
    }
    if (!vals.length) {
      const t = timeOf(pieces, (low + high) / 2);
      vals.push((low + high) / 2);
      texts.push(clockText(t, 0.001) + "<br>" + clockText(t, DAY));
    }
    return { vals, texts };
  };

  // What is under the pointer.

  const numbers = (typed) => {
    const bytes = Uint8Array.from(atob(typed.bdata), (char) => char.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const wide = typed.dtype === "f8";
    const size = wide ? 8 : 4;
    const values = new Float64Array(bytes.length / size);
    for (let i = 0; i < values.length; i++) {
      values[i] = wide ? view.getFloat64(i * size, true) : view.getFloat32(i * size, true);
    }
    return values;
  };

  // By panel and lane, the bars in the order of time.
  const lanesOf = (data) => {
    const panels = {};
    data.forEach((trace, number) => {
      if (!trace.meta?.texts) return;
      const x = numbers(trace.x);
      const y = numbers(trace.y);
      const lanes = (panels["x" + (trace.yaxis ?? "y")] ??= new Map());
      for (let i = 0; 3 * i < x.length; i++) {
        const lane = y[3 * i];
        if (!lanes.has(lane)) lanes.set(lane, []);
        lanes.get(lane).push({ x0: x[3 * i], x1: x[3 * i + 1], number, i, meta: trace.meta });
      }
    });
    for (const lanes of Object.values(panels)) {
      for (const bars of lanes.values()) bars.sort((a, b) => a.x0 - b.x0);
    }
    return panels;
  };

  const lasted = (s) => {
    if (s < 1) return `${Math.round(s * 1000)} ms`;
    if (s < 60) return `${s.toFixed(1)} s`;
    const m = Math.round(s / 60);
    return m < 120 ? `${Math.floor(s / 60)} min ${Math.round(s % 60)} s` : `${Math.floor(m / 60)} h ${m % 60} min`;
  };

  const describe = (bar, pieces) => {
    const { meta, i } = bar;
    const text = (column) => (meta[column] ? meta.texts[meta[column][i]] : "");
    const at = (column) => (meta[column] ? meta[column][i] : null);
    const start = timeOf(pieces, bar.x0);
    const stamp = (t) => new Date(Math.round(t * 1000)).toISOString().slice(11, 23);
    const lines = [`${meta.kind} ${at("id")}: ${meta.outcome}${text("why") ? ", " + text("why") : ""}`];
    if (text("group")) lines.push(`of group ${text("group")}`);
    const whose = [];
    if (text("prompt")) whose.push(`prompt ${text("prompt")}`);
    if (text("gen")) whose.push(`generation ${text("gen")}`);
    if (at("run")) whose.push(`run ${at("run")}`);
    if (whose.length) lines.push(whose.join(", "));
    lines.push(`${stamp(start)} to ${stamp(start + at("s"))}, ${lasted(at("s"))}`);
    const counts = [];
    if (at("tok") !== null) counts.push(`${at("tok").toLocaleString("en")} tokens`);
    if (at("step") !== null) counts.push(`trained in step ${at("step")}`);
    if (counts.length) lines.push(counts.join(", "));
    return lines.join("\n");
  };

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);

  const under = (box, figure, event) => {
    for (const [panel, lanes] of Object.entries(figure.lanes)) {
      const area = box.querySelector(`.nsewdrag[data-subplot="${panel}"]`)?.getBoundingClientRect();
      if (!area || event.clientY < area.top || event.clientY > area.bottom) continue;
      if (event.clientX < area.left || event.clientX > area.right) continue;
      const range = (axis) => box.layout[axis].range;
      const [x0, x1] = range("xaxis");
      const [y0, y1] = range("yaxis" + panel.slice(2));
      const unit = (x1 - x0) / area.width;
      const x = x0 + (event.clientX - area.left) * unit;
      const lane = Math.round(y1 + ((event.clientY - area.top) / area.height) * (y0 - y1));
      let best = null;
      for (const bar of lanes.get(lane) ?? []) {
        if (bar.x0 > x + 3 * unit) break;
        if (bar.x1 < x - 3 * unit || box.data[bar.number].visible === "legendonly") continue;
        if (!best || bar.x0 <= x) best = bar;
      }
      return best;
    }
    return null;
  };

  const follow = (box, figure) => {
    const hide = () => (tip.hidden = true);
    const show = (event) => {
      const bar = under(box, figure, event);
      if (!bar) return hide();
      tip.textContent = describe(bar, figure.clock);
      tip.hidden = false;
      const { width, height } = tip.getBoundingClientRect();
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4)) + "px";
      const below = event.clientY + 16;
      tip.style.top = (below + height > innerHeight ? event.clientY - height - 12 : below) + "px";
    };
    box.addEventListener("pointermove", show);
    box.addEventListener("pointerdown", show);
    box.addEventListener("pointerleave", hide);
    addEventListener("scroll", hide, { passive: true });
  };

  // Drawing

  const webgl = (() => {
    try {
      return !!document.createElement("canvas").getContext("webgl");
    } catch {
      return false;
    }
  })();

  const width = (box, layout) => box.clientWidth - layout.margin.l - layout.margin.r;

  // After a zoom: ticks for what is in view, and bars as thick as their lanes. All at once,
  // since drawing many bars again is what takes long.
  const adjust = (box, figure) => {
    const layout = box.layout;
    const { vals, texts } = ticks(figure.clock, layout.xaxis.range, width(box, layout));
    const same = JSON.stringify(vals) === JSON.stringify(layout.xaxis.tickvals);
    const changes = same ? {} : { "xaxis.tickvals": vals, "xaxis.ticktext": texts };
    const which = [];
    const widths = [];
    for (const y of figure.tips ? ["y", "y2"] : []) {
      const area = box.querySelector(`.nsewdrag[data-subplot="x${y}"]`).getBoundingClientRect();
      const [y0, y1] = layout[y.replace("y", "yaxis")].range;
      const thick = Math.max(1, Math.min(14, (0.7 * area.height) / (y1 - y0)));
      box.data.forEach((trace, number) => {
        if (!trace.meta?.texts || (trace.yaxis ?? "y") !== y) return;
        const ratio = thick / trace.line.width;
        if (ratio > 0.7 && ratio < 1.4) return;
        which.push(number);
        widths.push(thick);
      });
    }
    if (which.length) Plotly.update(box, { "line.width": widths }, changes, which);
    else if (!same) Plotly.relayout(box, changes);
  };

  const draw = (box) => {
    if (figures.has(box)) return;
    const figure = JSON.parse(document.getElementById(box.dataset.figure).textContent);
    figures.set(box, figure);
    const { data, layout } = figure;
    if (figure.tips) figure.lanes = lanesOf(data);
    if (!webgl) for (const trace of data) if (trace.type === "scattergl") trace.type = "scatter";
    put(layout, inks(layout));
    for (const trace of data) if (trace.meta?.ink) trace.line.color = colour("--ink");
    if (narrow.matches) {
      layout.margin.l = Math.min(layout.margin.l, 74);
      layout.margin.r = 8;
      layout.font.size = 11;
      // The legend stands in one column there.
      const entries = data.filter((trace) => trace.showlegend !== false && trace.name).length;
      layout.height += 14 * entries;
      box.style.height = layout.height + "px";
    }
    if (matchMedia("(pointer: coarse)").matches && !figure.tips) layout.dragmode = false;
    if (figure.clock) {
      const { vals, texts } = ticks(figure.clock, layout.xaxis.range, width(box, layout));
      Object.assign(layout.xaxis, { tickvals: vals, ticktext: texts });
    }
    const config = {
      responsive: true,
      displaylogo: false,
      displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
      doubleClick: "reset",
      // Named, so that none is among them that would send anything anywhere.
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    };
    Plotly.newPlot(box, data, layout, config).then(() => {
      if (figure.clock) box.on("plotly_relayout", () => adjust(box, figure));
      box.dataset.drawn = "yes";
    });
    if (figure.tips) follow(box, figure);
  };

  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        draw(entry.target);
      }
    },
    { rootMargin: "400px" },
  );
  boxes.forEach((box) => seen.observe(box));

  for (const button of document.querySelectorAll("button[data-range]")) {
    button.addEventListener("click", () => {
      const box = button.closest("figure").querySelector(".plot");
      draw(box);
      Plotly.relayout(box, { "xaxis.range": JSON.parse(button.dataset.range) });
    });
  }

  const repaint = () => {
    for (const box of figures.keys()) {
      Plotly.relayout(box, inks(box.layout));
      const own = [...box.data.keys()].filter((number) => box.data[number].meta?.ink);
      if (own.length) Plotly.restyle(box, { "line.color": colour("--ink") }, own);
    }
  };
  dark.addEventListener("change", repaint);
  addEventListener("beforeprint", () => {
    root.classList.add("printing");
    boxes.forEach(draw);
    repaint();
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    repaint();
  });
})();
