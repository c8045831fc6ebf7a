// One group: its timeline, the rebalance that is chosen, findings, members and partitions.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { ask } from "./api.js";
import { Changes } from "./changes.js";
import { compact, duration, held, kindText, moment, number, printable, time } from "./format.js";
import { Verdict } from "./groups.js";
import { prepare, spanned, Timeline } from "./timeline.js";

const SPANS = [["15 min", 900_000], ["1 h", 3_600_000], ["6 h", 21_600_000], ["24 h", 86_400_000]];
const HOUR = 3_600_000;
const TELL_MS = 150;  // how often the page around the chart follows while it is dragged

// The view of a span and of as much again on either side, so that dragging shows something at once.
function useView(group, from, to, stamp) {
  const [view, setView] = useState(null);
  const [error, setError] = useState("");
  const asked = useRef({ from: 0, to: 0, stamp: null, running: null });
  useEffect(() => {
    const last = asked.current, span = to - from;
    const inside = from >= last.from && to <= last.to && span > (last.to - last.from) / 12;
    if (inside && last.stamp === stamp) return undefined;
    const timer = setTimeout(() => {
      last.running?.abort();
      last.running = new AbortController();
      const wide = { from: Math.max(0, Math.round(from - span)), to: Math.round(to + span) };
      ask("group", { group, ...wide }, last.running.signal).then((found) => {
        Object.assign(last, wide, { stamp });
        setView(found); setError("");
      }).catch((failure) => { if (failure.name !== "AbortError") setError(failure.message); });
    }, view ? 120 : 0);
    return () => clearTimeout(timer);
  }, [group, from, to, stamp]);
  return [view, error];
}

function Tip({ at, view }) {
  if (!at || (at.band < 0 && at.bar < 0)) return null;
  const { bands, texts } = view.view;
  const style = { left: `${Math.min(at.x + 14, innerWidth - 320)}px`, top: `${at.y + 16}px` };
  if (at.band >= 0) {
    const i = at.band;
    return html`<div class="tip" style=${style} role="tooltip"><b>${printable(texts[bands.text[i]])}</b>
      <div>${bands.standstill[i] === null ? "nobody knows for how long" : bands.standstill[i] === 0 ? "members went on reading" : `${bands.exact[i] ? "stood still for" : "estimated: stood still for at most"} ${duration(bands.standstill[i])}`}${bands.end[i] < 0 ? " so far" : ""}</div>
      <div class="quiet">${time(bands.start[i], true)}${bands.generation[i] >= 0 ? ` · generation ${bands.generation[i]}` : ""}${bands.moved[i] === null ? "" : ` · ${bands.moved[i]} moved`} · click for more</div></div>`;
  }
  return html`<div class="tip" style=${style} role="tooltip"><b>${printable(view.view.lanes[at.lane].name)}</b><div>${view.texts[view.bars.set[at.bar]]}</div><div class="quiet">${at.clock}</div></div>`;
}

function Diff({ diff }) {
  const parts = [["moved", "moved"], ["lost", "lost their reader"], ["came", "got a reader"]];
  return html`<div class="diff"><p><b>${diff.moved.length}</b> moved, <b>${diff.kept}</b> kept, <b>${diff.lost.length}</b> lost, <b>${diff.came.length}</b> came</p>
    ${parts.filter(([name]) => diff[name].length).map(([name, label]) => html`<details open=${diff[name].length <= 8}><summary>${diff[name].length} ${label}</summary>
      <ul>${diff[name].slice(0, 200).map((one) => html`<li><code>${printable(one.partition)}</code> ${one.from && html`<span class="from">${printable(one.from)}</span>`} ${one.from && one.to && "→"} ${one.to && html`<span class="to">${printable(one.to)}</span>`}</li>`)}</ul></details>`)}</div>`;
}

function Detail({ group, id, stamp, close }) {
  const [detail, setDetail] = useState(null);
  const [error, setError] = useState("");
  const heading = useRef(null);
  useEffect(() => {
    let current = true;
    ask("rebalance", { group, id }).then((found) => { if (current) { setDetail(found); setError(""); } }).catch((failure) => { if (current) setError(failure.message); });
    return () => { current = false; };
  }, [group, id, detail?.end === -1 ? stamp : 0]);
  if (error) return html`<section class="card detail"><p>${error}</p><button onClick=${close}>Close</button></section>`;
  if (!detail) return html`<section class="card detail" aria-busy="true"><p class="quiet">…</p></section>`;
  return html`<section class="card detail" aria-label="The chosen rebalance">
    <div class="bar"><h2 ref=${heading}>${detail.generation === null ? "A rebalance" : `To generation ${detail.generation}`} <span class="quiet">${moment(detail.start)}</span></h2><button class="plain" onClick=${close} aria-label="Close">✕</button></div>
    <p class="lead">${detail.text}</p>
    ${!detail.exact && html`<p class="quiet">Estimated: only what every Kafka stores is known. It does not say how somebody left.</p>`}
    ${detail.causes.length > 1 && html`<details><summary>${detail.causes.length} causes</summary><ul>${detail.causes.slice(0, 100).map((one) => html`<li><span class="quiet">${time(one.at, true)}</span> ${one.who && printable(one.who)} ${one.text}</li>`)}</ul></details>`}
    ${detail.advice.map((one) => html`<p class="advice"><${Verdict} kind=${one.kind} severity=${one.severity} /> ${one.text} <b>${one.advice}</b></p>`)}
    <h3>What it did to the assignment</h3><${Diff} diff=${detail.diff} />
  </section>`;
}

function Findings({ findings }) {
  if (!findings.length) return html`<p class="quiet">Nothing harmful was found in the last hour.</p>`;
  return html`<ul class="findings">${findings.map((one) => html`<li><${Verdict} kind=${one.kind} severity=${one.severity} /> ${one.text} <span class="advice">${one.advice}</span></li>`)}</ul>`;
}

function Rebalances({ view, from, to, chosen, pick }) {
  const { bands, texts } = view;
  const [most, setMost] = useState(12);
  const rows = [];
  for (let i = bands.start.length - 1; i >= 0 && rows.length <= most; i -= 1) if (bands.start[i] < to && (bands.end[i] < 0 || bands.end[i] >= from)) rows.push(i);
  const more = rows.length > most && rows.pop() !== undefined;
  return html`<section class="card"><h2>Rebalances in this span</h2>${rows.length === 0 ? html`<p class="quiet">None.</p>` : html`
    <div class="wide"><table class="cards"><thead><tr><th scope="col">Started</th><th scope="col">Cause</th><th scope="col" class="n">Stood still</th><th scope="col" class="n">Generation</th><th scope="col" class="n">Members</th><th scope="col" class="n">Moved</th></tr></thead>
    <tbody>${rows.map((i) => html`<tr key=${bands.id[i]} class=${bands.id[i] === chosen ? "chosen" : ""}>
      <th scope="row" data-label="Started"><button class="plain link" onClick=${() => pick(i)}>${time(bands.start[i], true)}</button></th>
      <td data-label="Cause">${printable(texts[bands.text[i]])}</td>
      <td class="n" data-label="Stood still">${bands.end[i] < 0 ? "under way" : bands.standstill[i] === null ? "–" : `${bands.exact[i] ? "" : "≤ "}${duration(bands.standstill[i])}`}</td>
      <td class="n" data-label="Generation">${bands.generation[i] < 0 ? "–" : bands.generation[i]}</td>
      <td class="n" data-label="Members">${bands.members[i] ?? "–"}</td><td class="n" data-label="Moved">${bands.moved[i] ?? "–"}</td></tr>`)}</tbody></table></div>
    ${more && html`<button onClick=${() => setMost(most + 100)}>Show more</button>`}${bands.of > bands.start.length && html`<p class="quiet">Of ${number(bands.of)} rebalances in and around this span those are here that can be told apart: zoom in for the others.</p>`}`}</section>`;
}

function Members({ view, act }) {
  const now = new Map(), next = new Map();
  view.bars.end.forEach((end, i) => { if (end < 0) now.set(view.lanes[view.bars.lane[i]].member_id, view.bars.sets[view.bars.set[i]]); });
  view.targets?.end.forEach((end, i) => { if (end < 0) next.set(view.target_lanes[view.targets.lane[i]], view.targets.sets[view.targets.set[i]]); });
  const here = view.lanes.filter((one) => one.here);
  return html`<section class="card"><h2>Members</h2>${here.length === 0 ? html`<p class="quiet">None now.</p>` : html`
    <div class="wide"><table class="cards"><thead><tr><th scope="col">Member</th><th scope="col">Holds</th>${view.targets && html`<th scope="col">Is to hold</th>`}<th scope="col">Member id</th>${act && html`<th scope="col"><span class="hidden">Do</span></th>`}</tr></thead>
    <tbody>${here.map((one) => html`<tr><th scope="row" data-label="Member">${printable(one.name)}</th><td data-label="Holds">${now.has(one.member_id) ? held(now.get(one.member_id)) : "nothing"}</td>
      ${view.targets && html`<td data-label="Is to hold">${next.has(one.member_id) ? held(next.get(one.member_id)) : "nothing"}</td>`}
      <td data-label="Member id"><code class="id">${printable(one.member_id)}</code></td>
      ${act && html`<td><button onClick=${() => act({ do: "remove-member", member: one.member_id, name: one.name })}>Remove…</button></td>`}</tr>`)}</tbody></table></div>`}</section>`;
}

function Partitions({ rows }) {
  const [all, setAll] = useState(false);
  const shown = all ? rows : rows.slice(0, 50);
  return html`<section class="card"><h2>Partitions</h2>${rows.length === 0 ? html`<p class="quiet">Nothing is committed and nothing assigned.</p>` : html`
    <div class="wide"><table class="cards"><thead><tr><th scope="col">Partition</th><th scope="col" class="n">Committed</th><th scope="col" class="n">End</th><th scope="col" class="n">Lag</th><th scope="col" class="n">Behind</th><th scope="col">Reader</th><th scope="col">Verdict</th></tr></thead>
    <tbody>${shown.map((one) => html`<tr><th scope="row" data-label="Partition">${printable(one.topic)}-${one.partition}</th><td class="n" data-label="Committed">${number(one.offset)}</td><td class="n" data-label="End">${number(one.end)}</td><td class="n" data-label="Lag">${number(one.lag)}</td><td class="n" data-label="Behind">${duration(one.lag_ms)}</td><td data-label="Reader">${one.reader ? printable(one.reader) : html`<span class="quiet">nobody</span>`}</td><td data-label="Verdict">${one.verdict}</td></tr>`)}</tbody></table></div>
    ${rows.length > shown.length && html`<button onClick=${() => setAll(true)}>Show all ${rows.length}</button>`}`}</section>`;
}

export function GroupScreen({ row, state, go, to, news, status, theme }) {
  const { group } = state;
  const now = status?.now_ms ?? Date.now();
  const following = state.from === undefined || state.to === undefined;
  const [width, setWidth] = useState(HOUR);
  const span = following ? [now - width, now] : [state.from, state.to];
  const [live, setLive] = useState(span);
  const [stamp, setStamp] = useState(0);
  const [hover, setHover] = useState(null);
  const [act, setAct] = useState(null);
  const [copied, setCopied] = useState(false);
  const chart = useRef(null), above = useRef(null), below = useRef(null), current = useRef({});
  useEffect(() => { if (news && (news.many || news.changed.includes(group))) setStamp(news.revision); }, [news]);
  useEffect(() => { setLive(span); }, [state.from, state.to, following ? now : 0, width]);
  const [view, error] = useView(group, live[0], live[1], stamp);
  const data = useMemo(() => view && prepare(view, state.colour), [view, state.colour, theme]);

  const jumpTo = (change, push = true) => { clearTimeout(current.current.timer); current.current.moving = null; go((before) => ({ ...before, ...change }), push); };
  const settle = (from, to_) => go((before) => ({ ...before, from, to: to_ }), false);
  // While it is moved the chart alone knows where it is; the page follows now and then, and when it stands still.
  const move = (from, to_, done) => {
    const mine = current.current, at = performance.now();
    mine.moving = [from, to_];
    chart.current?.span(from, to_);
    if (at - (mine.told ?? 0) > TELL_MS) { mine.told = at; setLive([from, to_]); }
    clearTimeout(mine.timer);
    mine.timer = setTimeout(() => { mine.moving = null; setLive([from, to_]); settle(from, to_); }, done ? 0 : 200);
  };
  const pick = (i) => {
    const id = i < 0 ? undefined : current.current.view.bands.id[i];
    go((before) => ({ ...before, rebalance: id, ...(id !== undefined && before.from === undefined ? { from: here()[0], to: here()[1] } : {}) }));
  };
  const here = () => current.current.moving ?? current.current.live;
  Object.assign(current.current, { view, live, move, pick });

  useLayoutEffect(() => {
    chart.current = new Timeline(above.current, below.current, { span: (...a) => current.current.move(...a), pick: (i) => current.current.pick(i), hover: setHover });
    window.kohortTimeline = chart.current;  // for those who measure it
    return () => chart.current.close();
  }, []);
  useEffect(() => { if (data) { if (chart.current.themed !== theme) { chart.current.themed = theme; chart.current.data = null; } chart.current.show(data, ...here()); } }, [data]);
  useEffect(() => { chart.current.span(...here()); }, [live]);
  useEffect(() => { chart.current.choose(state.rebalance); }, [state.rebalance, data]);

  const step = (by) => {
    if (!view) return;
    const { id, start, end } = view.bands;
    const at = id.indexOf(state.rebalance);
    const i = at >= 0 ? at + by : by > 0 ? start.findIndex((ms) => ms >= live[0]) : start.findLastIndex((ms) => ms <= live[1]);
    if (i < 0 || i >= id.length) return;
    const middle = (start[i] + (end[i] < 0 ? now : end[i])) / 2, half = (live[1] - live[0]) / 2;
    const [from, until] = start[i] < live[0] || start[i] > live[1] ? spanned(middle - half, middle + half) : live;
    jumpTo({ from, to: until, rebalance: id[i] }, false);
  };
  const follow = () => { setWidth(here()[1] - here()[0]); jumpTo({ from: undefined, to: undefined }); };
  useEffect(() => {
    const key = (event) => {
      if (event.target.closest("input, select, textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
      const [from, until] = here(), by = (until - from) / 5;
      const does = { ArrowLeft: () => move(...spanned(from - by, until - by)), ArrowRight: () => move(...spanned(from + by, until + by)), "+": () => chart.current.zoom(0.6), "=": () => chart.current.zoom(0.6), "-": () => chart.current.zoom(1.7), n: () => step(1), p: () => step(-1), f: follow, Escape: () => pick(-1) }[event.key];
      if (does) { event.preventDefault(); does(); }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  });

  const everything = () => { if (view) { const [from, until] = spanned(view.first_ms - 1000, Math.max(view.now_ms, view.first_ms + 1000) + 1000); jumpTo({ from, to: until }); } };
  const exported = new URLSearchParams({ group, from: live[0], to: live[1] });
  const short = view?.bars.left_out_below_ms;
  const jump = (event) => { const ms = Date.parse(`${event.target.value}Z`); if (ms) { const half = (live[1] - live[0]) / 2; jumpTo({ from: Math.round(ms - half), to: Math.round(ms + half) }); } };
  const copy = () => navigator.clipboard?.writeText(location.href).then(() => { setCopied(true); setTimeout(() => setCopied(false), 2000); });
  return html`
    <p class="crumbs"><a ...${to({})}>Groups</a> /</p>
    <div class="head"><h1 class="name">${printable(group)}</h1>
      ${row && html`<${Verdict} kind=${row.verdict} severity=${row.severity} />`}
      ${view && html`<span class="badge ${view.exact ? "ok" : "note"}" title=${`from ${view.source}`}>${view.exact ? "exact" : "estimated"}</span>`}</div>
    ${row && html`<dl class="facts"><div><dt>State</dt><dd>${row.state || "–"}</dd></div><div><dt>Members</dt><dd>${row.members}</dd></div><div><dt>Lag</dt><dd>${compact(row.lag)}</dd></div><div><dt>Behind</dt><dd>${duration(row.lag_ms)}</dd></div><div><dt>Rebalances / h</dt><dd>${row.rebalances_per_hour}</dd></div><div><dt>Standstill / h</dt><dd>${duration(row.standstill_ms_per_hour)}</dd></div><div><dt>Protocol</dt><dd>${row.protocol ? printable(row.protocol) : "–"}</dd></div></dl>`}
    <section class="card timeline" aria-label="Timeline">
      <div class="tools">
        <div class="chips" role="group" aria-label="Span">${SPANS.map(([label, ms]) => html`<button class="chip" aria-pressed=${following && width === ms} onClick=${() => { setWidth(ms); jumpTo({ from: undefined, to: undefined }); }}>${label}</button>`)}
          <button class="chip" onClick=${everything}>All</button></div>
        <button class="chip" aria-pressed=${following} onClick=${follow}>${following ? "● Following" : "Follow"}</button>
        <span class="buttons"><button aria-label="Zoom in" onClick=${() => chart.current.zoom(0.6)}>+</button><button aria-label="Zoom out" onClick=${() => chart.current.zoom(1.7)}>−</button></span>
        <label>Jump to <input type="datetime-local" onChange=${jump} /></label>
        <label>Colour <select value=${state.colour || "partition"} onChange=${(event) => go((before) => ({ ...before, colour: event.target.value === "topic" ? "topic" : undefined }), false)}><option value="partition">by partition</option><option value="topic">by topic</option></select></label>
        <span class="spacer"></span>
        <a class="button" href=${`/api/timeline.svg?${exported}`} download>SVG</a><a class="button" href=${`/api/report.html?${exported}`} download>Report</a><button onClick=${copy}>${copied ? "Copied" : "Copy link"}</button>
      </div>
      ${error && html`<p class="notice problem" role="alert"><strong>${error}</strong></p>`}
      <p class="quiet range">${moment(live[0])} – ${moment(live[1])}${short ? html` · bars shorter than ${duration(short)} are left out at this span: zoom in` : ""}</p>
      <div ref=${above} class="lanes" role="img" aria-label=${`Timeline of ${printable(group)}: who held which partitions, and rebalances. The table below tells the same.`}></div>
      <p class="quiet legend"><span class="key line"></span> lag <span class="key commits"></span> commits <span class="key band"></span> standstill <span class="key guess"></span> standstill, estimated</p>
      <div ref=${below} class="below" role="img" aria-label="Lag and commits"></div>
      ${view && data && data.rows.size === 0 && html`<p class="quiet">Nobody held a partition in this span.</p>`}
      <${Tip} at=${hover} view=${data} />
    </section>
    ${state.rebalance !== undefined && html`<${Detail} group=${group} id=${state.rebalance} stamp=${stamp} close=${() => pick(-1)} />`}
    ${view && html`<section class="card"><h2>What is wrong, and what to change</h2><${Findings} findings=${view.findings} /></section>
      <${Rebalances} view=${view} from=${live[0]} to=${live[1]} chosen=${state.rebalance} pick=${pick} />
      <${Members} view=${view} act=${status?.changes && setAct} /><${Partitions} rows=${view.partitions} />
      ${status?.changes && html`<section class="card"><h2>Do</h2><p class="buttons"><button onClick=${() => setAct({ do: "reset-offsets" })}>Reset offsets…</button><button class="danger" onClick=${() => setAct({ do: "delete-group" })}>Delete the group…</button></p></section>`}`}
    ${act && html`<${Changes} group=${group} what=${act} close=${() => setAct(null)} />`}`;
}
