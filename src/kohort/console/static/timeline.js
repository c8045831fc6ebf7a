// The timeline drawn with uPlot: lanes with bars and bands above, commits and lag below, on one axis of time.
// uPlot has the axes, the cursor and the series; the bars are painted in its draw hook, at most one a pixel and lane.

import { compact, held, printable, time } from "./format.js";
import uPlot from "./vendor/uplot.js";

// The table of groups needs none of it.
await new Promise((done, failed) => document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: "/static/vendor/uplot.css", onload: done, onerror: failed })));

const PALETTE = ["#4f8ef7", "#e5844b", "#3fb27f", "#b07cf0", "#e05d7b", "#2fb3c7", "#c9a227", "#8a99ad", "#d16ec0", "#6fae3c"];
export const LANE = 36;
const LEFT = 150, NARROW_LEFT = 84, RIGHT = 28;
const LEAST_SPAN = 50, MOST_SPAN = 400 * 86_400_000;

export function spanned(from, to) {
  let span = Math.min(Math.max(to - from, LEAST_SPAN), MOST_SPAN);
  return [Math.round(Math.max(0, from)), Math.round(Math.max(0, from) + span)];
}

// The answer of the server as typed arrays, sorted by lane and start, and the colours of every set.
export function prepare(view, colour) {
  const { lane, start, end, set, sets } = view.bars;
  const order = Uint32Array.from(lane.keys()).sort((a, b) => lane[a] - lane[b] || start[a] - start[b]);
  const bars = { lane: new Int32Array(order.length), start: new Float64Array(order.length), end: new Float64Array(order.length), set: new Int32Array(order.length) };
  order.forEach((from, to) => {
    bars.lane[to] = lane[from]; bars.start[to] = start[from]; bars.end[to] = end[from] < 0 ? Infinity : end[from]; bars.set[to] = set[from];
  });
  const name = (i) => view.lanes[i].name, shown = [...new Set([...view.lanes.keys()].filter((i) => view.lanes[i].here).concat(lane))];
  shown.sort((a, b) => view.lanes[b].here - view.lanes[a].here || name(a).localeCompare(name(b), "en", { numeric: true }) || a - b);
  const rows = new Map(shown.map((one, row) => [one, row]));
  const known = [...new Set(sets.flat().flatMap(([topic, numbers]) => (colour === "topic" ? [topic] : numbers.map((n) => JSON.stringify([topic, n])))))].sort((a, b) => {
    if (colour === "topic") return a < b ? -1 : 1;
    const [at, an] = JSON.parse(a), [bt, bn] = JSON.parse(b);
    return at === bt ? an - bn : at < bt ? -1 : 1;
  });
  const colourOf = new Map(known.map((name, i) => [name, PALETTE[i % PALETTE.length]]));
  const stripes = sets.map((one) => one.flatMap(([topic, numbers]) => numbers.map((n) => colourOf.get(colour === "topic" ? topic : JSON.stringify([topic, n])))));
  const firsts = new Map();
  for (let i = bars.lane.length - 1; i >= 0; i -= 1) firsts.set(bars.lane[i], i);
  return { view, bars, rows, firsts, stripes, texts: sets.map(held), widths: [], colourOf, lanesOf: [...rows.keys()] };
}

// 24 hours, UTC; the day where it begins.
function ticks(u, splits, _, __, step) {
  return splits.map((ms) => (ms % 86_400_000 === 0 ? new Date(ms).toISOString().slice(5, 10) : step < 1000 ? time(ms, true).slice(3) : step < 60_000 ? time(ms) : time(ms).slice(0, 5)));
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Read once for every chart that is built: to ask for a style in a frame makes the browser work all of them out.
const themed = () => ({ lane: css("--lane"), ink: css("--bar-ink"), band: css("--band"), guess: css("--guess"), text: css("--text") });

function paint(u, data, chosen, theme) {
  const { ctx } = u, ratio = devicePixelRatio || 1, box = u.bbox, view = data.view;
  const { min, max } = u.scales.x, perMs = box.width / (max - min), x = (ms) => box.left + (ms - min) * perMs;
  const rowHeight = box.height / Math.max(1, data.rows.size), barHeight = rowHeight * 0.78;
  ctx.save();
  ctx.beginPath(); ctx.rect(box.left, box.top, box.width, box.height); ctx.clip();
  ctx.fillStyle = theme.lane;
  for (let row = 0; row < data.rows.size; row += 1) ctx.fillRect(box.left, box.top + row * rowHeight + rowHeight * 0.11, box.width, barHeight);
  ctx.font = `${11 * ratio}px system-ui, sans-serif`; ctx.textBaseline = "middle"; ctx.textAlign = "left";
  let painted = 0;
  const { lane, start, end, set } = data.bars, now = Math.max(view.now_ms, min);
  for (const [one, first] of data.firsts) {
    const y = box.top + data.rows.get(one) * rowHeight + rowHeight * 0.11;
    let free = -1;
    let low = first, high = first;
    while (high < lane.length && lane[high] === one) high += 1;  // the lane's end; then the first bar that can be seen
    let upper = high;
    while (low < upper) { const middle = (low + upper) >> 1; if (end[middle] < min) low = middle + 1; else upper = middle; }
    for (let i = low; i < high && start[i] < max; i += 1) {
      const x1 = Math.min(x(end[i] === Infinity ? now : end[i]), box.left + box.width);
      if (x1 <= free) continue;
      const x0 = Math.max(x(start[i]), box.left), width = Math.max(x1 - x0, ratio), colours = data.stripes[set[i]], stripe = barHeight / colours.length;
      for (let s = 0; s < colours.length; s += 1) { ctx.fillStyle = colours[s]; ctx.fillRect(x0, y + s * stripe, width, stripe > 3 ? stripe - ratio * 0.75 : stripe); }
      if (width > 40 * ratio) {
        const wide = (data.widths[set[i]] ??= ctx.measureText(data.texts[set[i]]).width / ratio) * ratio;
        if (wide + 16 * ratio < width) {
          ctx.fillStyle = theme.ink; ctx.globalAlpha = 0.85; ctx.beginPath(); ctx.roundRect(x0 + 4 * ratio, y + barHeight / 2 - 8 * ratio, wide + 8 * ratio, 16 * ratio, 4 * ratio); ctx.fill(); ctx.globalAlpha = 1;
          ctx.fillStyle = theme.text; ctx.fillText(data.texts[set[i]], x0 + 8 * ratio, y + barHeight / 2);
        }
      }
      free = Math.floor(x1) + (width <= ratio ? ratio : 0); painted += 1;
    }
  }
  paintTargets(ctx, data, { x, box, rowHeight, barHeight, ratio, now, text: theme.text });
  const bands = view.bands;
  let last = -1;
  for (let i = 0; i < bands.start.length; i += 1) {
    const endMs = bands.end[i] < 0 ? now : bands.end[i];
    if (endMs < min || bands.start[i] > max) continue;
    const x0 = x(bands.start[i]), thin = x(endMs) - x0 < ratio, x1 = Math.max(x(endMs), x0 + ratio);
    if (x1 <= last && bands.id[i] !== chosen) continue;
    const colour = bands.exact[i] ? theme.band : theme.guess;
    ctx.globalAlpha = thin || bands.standstill[i] === 0 ? 0.3 : 0.55; ctx.fillStyle = colour; ctx.fillRect(Math.max(x0, last), box.top, x1 - Math.max(x0, last), box.height); ctx.globalAlpha = 1;
    if (bands.id[i] === chosen) { ctx.strokeStyle = theme.text; ctx.lineWidth = 2 * ratio; ctx.strokeRect(x0 - ratio, box.top + ratio, x1 - x0 + 2 * ratio, box.height - 2 * ratio); }
    last = Math.max(last, x1);
  }
  ctx.restore();
  data.painted = painted;
}

// KIP-848: what a member is to have, as an outline, where it is not what it has.
function paintTargets(ctx, data, at) {
  const { targets, target_lanes: ids, lanes } = data.view;
  if (!targets) return;
  ctx.strokeStyle = at.text; ctx.setLineDash([3 * at.ratio, 2 * at.ratio]); ctx.lineWidth = at.ratio;
  targets.lane.forEach((lane, i) => {
    const here = lanes.findIndex((one) => one.member_id === ids[lane]), row = data.rows.get(here);
    if (row === undefined) return;
    const x0 = at.x(targets.start[i]), x1 = at.x(targets.end[i] < 0 ? at.now : targets.end[i]), y = at.box.top + row * at.rowHeight;
    ctx.strokeRect(x0, y + at.rowHeight * 0.04, x1 - x0, at.rowHeight * 0.92);
  });
  ctx.setLineDash([]);
}

export class Timeline {
  // `on`: span(from, to, done), pick(band index or -1), hover({ x, y, band, lane, bar } or null)
  constructor(root, below, on) {
    this.root = root; this.below = below; this.on = on; this.data = null; this.chosen = undefined; this.top = null; this.bottom = null;
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(root);
  }

  get left() { return this.root.clientWidth < 600 ? NARROW_LEFT : LEFT; }

  show(data, from, to) {
    const same = this.data && this.data.rows.size === data.rows.size;
    this.data = data;
    this.from = from; this.to = to;
    if (!same || !this.top) this.build(); else { this.top.redraw(false, true); this.bottom.setData(this.series(), false); this.scale(); }
  }

  choose(id) { if (id !== this.chosen) { this.chosen = id; this.top?.redraw(false, false); } }

  // Every call draws both charts, so a span that is shown already is not set again.
  span(from, to) {
    if (this.from === from && this.to === to) return;
    this.from = from; this.to = to;
    this.scale();
  }

  scale() {
    if (!this.top) return;
    this.top.setScale("x", { min: this.from, max: this.to });
    this.bottom.setScale("x", { min: this.from, max: this.to });
  }

  series() {
    const { at, commits, lag } = this.data.view.series;
    return [at.length ? at : [this.from], commits.length ? commits.map((n) => n || null) : [null], lag.length ? lag.map((n) => (n < 0 ? null : n)) : [null]];
  }

  options(extra) {
    const axis = { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") }, font: "11px system-ui, sans-serif" };
    return {
      width: this.root.clientWidth, ms: 1, tzDate: (ms) => uPlot.tzDate(new Date(ms), "Etc/UTC"), legend: { show: false },
      padding: [4, RIGHT, 0, 0], ...extra(axis),
      cursor: { sync: { key: "kohort" }, drag: { x: false, y: false }, y: false, points: { show: false } },
    };
  }

  build() {
    this.top?.destroy(); this.bottom?.destroy();
    const { data } = this, theme = themed();
    const names = data.lanesOf.map((lane) => data.view.lanes[lane]);
    const bare = (one) => one.instance_id || one.client_id || one.member_id, plain = new Set(names.map(bare)).size === names.length;
    const fit = (name) => { const most = this.left < LEFT ? 11 : 22; return name.length > most ? `${name.slice(0, most - 1)}…` : name; };
    this.top = new uPlot(this.options((axis) => ({
      height: Math.max(1, data.rows.size) * LANE + 34,
      scales: { x: { time: true, auto: false, min: this.from, max: this.to }, y: { auto: false, range: [0, Math.max(1, data.rows.size)] } },
      axes: [{ ...axis, space: 76, values: ticks }, {
        ...axis, size: this.left, grid: { show: false }, ticks: { show: false }, gap: 8,
        splits: () => names.map((_, row) => names.length - row - 0.5), values: () => names.map((one) => fit(printable(plain ? bare(one) : one.name))), filter: (u, splits) => splits,
      }],
      series: [{}, { show: false }],
      hooks: { draw: [(u) => paint(u, this.data, this.chosen, theme)] },
    })), [[this.from, this.to], [null, null]], this.root);
    const bars = uPlot.paths.bars({ size: [0.9, 12] });
    this.bottom = new uPlot(this.options((axis) => ({
      height: 150,
      scales: { x: { time: true, auto: false, min: this.from, max: this.to }, lag: { range: (u, low, high) => [0, Math.max(high, 1) * 1.08] }, commits: { range: (u, low, high) => [0, Math.max(high, 1) * 2.5] } },
      axes: [{ ...axis, space: 76, values: ticks }, { ...axis, size: this.left, scale: "lag", gap: 8, values: (u, splits) => splits.map((n) => (n === null ? "" : `${compact(n)}`)) }],
      series: [{}, { label: "commits", scale: "commits", paths: bars, fill: css("--commit"), width: 0, points: { show: false } },
        { label: "lag", scale: "lag", stroke: css("--accent"), width: 2, spanGaps: true, fill: `${css("--accent")}22`, points: { show: this.data.view.series.at.length < 3 } }],
    })), this.series(), this.below);
    this.listen(this.top); this.listen(this.bottom);
    this.scale();
  }

  listen(u) {
    const over = u.over;
    let held = null;
    const ms = (event) => this.from + (event.clientX - over.getBoundingClientRect().left) / over.clientWidth * (this.to - this.from);
    over.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { const by = event.deltaX / over.clientWidth * (this.to - this.from); this.on.span(...spanned(this.from + by, this.to + by), false); return; }
      this.zoom(1.0015 ** event.deltaY, ms(event));
    }, { passive: false });
    over.addEventListener("pointerdown", (event) => { if (event.button === 0) { held = { x: event.clientX, from: this.from, to: this.to, moved: false, id: event.pointerId }; } });
    over.addEventListener("pointermove", (event) => {
      if (held) {
        const by = (held.x - event.clientX) / over.clientWidth * (held.to - held.from);
        if (!held.moved && Math.abs(event.clientX - held.x) > 4) { held.moved = true; over.setPointerCapture(held.id); }
        if (held.moved) { this.on.span(...spanned(held.from + by, held.to + by), false); return; }
      }
      this.on.hover(u === this.top ? this.at(event, ms(event)) : null);
    });
    const release = (event) => {
      if (held && !held.moved && event.type === "pointerup" && u === this.top) this.on.pick(this.at(event, ms(event)).band);
      if (held?.moved) this.on.span(this.from, this.to, true);
      held = null;
    };
    over.addEventListener("pointerup", release); over.addEventListener("pointercancel", release);
    over.addEventListener("pointerleave", () => this.on.hover(null));
  }

  zoom(by, around = (this.from + this.to) / 2) {
    const from = around - (around - this.from) * by;
    this.on.span(...spanned(from, from + (this.to - this.from) * by), false);
  }

  // What is under the pointer; a band is caught a few pixels beside it too.
  at(event, ms) {
    const { bands, now_ms: now } = this.data.view, box = this.top.over.getBoundingClientRect(), slack = (this.to - this.from) / box.width * 4;
    let band = -1, best = Infinity;
    for (let i = bands.start.length - 1; i >= 0; i -= 1) {
      const end = bands.end[i] < 0 ? now : bands.end[i], away = ms < bands.start[i] ? bands.start[i] - ms : ms > end ? ms - end : 0;
      if (away <= slack && away < best) { best = away; band = i; }
    }
    const row = Math.floor((event.clientY - box.top) / box.height * this.data.rows.size), lane = this.data.lanesOf[row];
    let bar = -1;
    const { bars } = this.data;
    for (let i = this.data.firsts.get(lane) ?? bars.lane.length; i < bars.lane.length && bars.lane[i] === lane; i += 1) if (bars.start[i] <= ms && ms < bars.end[i]) bar = i;
    return { x: event.clientX, y: event.clientY, ms, band, lane, bar, clock: time(ms, this.to - this.from < 600_000) };
  }

  resize() {
    if (!this.top || !this.root.clientWidth || this.root.clientWidth === this.width) return;
    this.width = this.root.clientWidth;
    this.build();
  }

  close() { this.watcher.disconnect(); this.top?.destroy(); this.bottom?.destroy(); }
}
