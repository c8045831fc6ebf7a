// All groups, the worst first: search, filter, sort.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { compact, duration, kindText, printable } from "./format.js";

const COLUMNS = [
  ["worst", "Verdict"], ["group", "Group"], ["state", "State"], ["members", "Members", "n"], ["lag", "Lag", "n"],
  ["behind", "Behind", "n"], ["rebalances", "Rebalances / h", "n"], ["standstill", "Standstill / h", "n"],
];
const VALUE = {
  group: (row) => row.group, state: (row) => row.state, members: (row) => -row.members, lag: (row) => -(row.lag ?? -1),
  behind: (row) => -(row.lag_ms ?? -1), rebalances: (row) => -row.rebalances_per_hour, standstill: (row) => -row.standstill_ms_per_hour,
};

function byScore(a, b) {
  for (let i = 0; i < a.score.length; i += 1) if (a.score[i] !== b.score[i]) return a.score[i] - b.score[i];
  return a.group < b.group ? -1 : a.group > b.group ? 1 : 0;
}

function ordered(rows, sort) {
  const value = VALUE[sort];
  if (!value) return [...rows].sort(byScore);
  return [...rows].sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : byScore(a, b)));
}

export function Sparkline({ values }) {
  if (values.length < 2) return html`<span class="spark" aria-hidden="true"></span>`;
  const most = Math.max(...values, 1), width = 64, height = 18;
  const points = values.map((v, i) => `${(i / (values.length - 1) * width).toFixed(1)},${(height - 1 - v / most * (height - 2)).toFixed(1)}`);
  const first = values[0], last = values[values.length - 1];
  const says = last > first * 1.1 ? "lag rises" : last < first * 0.9 ? "lag falls" : "lag is steady";
  return html`<svg class="spark" viewBox="0 0 ${width} ${height}" width=${width} height=${height} role="img" aria-label=${says}><polyline points=${points.join(" ")} /></svg>`;
}

export const Verdict = ({ kind, severity }) => html`<span class="badge ${severity}">${kindText(kind)}</span>`;

function Row({ row, to }) {
  const others = row.verdicts.filter(([kind]) => kind !== row.verdict).map(([kind]) => kindText(kind));
  return html`<tr class=${row.state === "Dead" ? "dead" : ""}>
    <td data-label="Verdict"><${Verdict} kind=${row.verdict} severity=${row.severity} />${others.length > 0 && html` <span class="quiet" title=${others.join(", ")}>+${others.length}</span>`}</td>
    <th scope="row" data-label="Group"><a class="name" ...${to({ group: row.group })}>${printable(row.group)}</a></th>
    <td data-label="State">${row.state || "–"}${row.type !== "classic" && html` <span class="quiet">${row.type}</span>`}</td>
    <td class="n" data-label="Members">${row.members}</td>
    <td class="n" data-label="Lag"><span class="lag"><${Sparkline} values=${row.trend} /><span>${compact(row.lag)}</span></span></td>
    <td class="n" data-label="Behind">${duration(row.lag_ms)}</td>
    <td class="n" data-label="Rebalances / h">${row.rebalances_per_hour || html`<span class="quiet">0</span>`}</td>
    <td class="n" data-label="Standstill / h">${row.standstill_ms_per_hour ? duration(row.standstill_ms_per_hour) : html`<span class="quiet">0</span>`}${!row.exact && row.standstill_ms_per_hour > 0 && html`<abbr title="estimated from commits: at most this"> ≤</abbr>`}</td>
  </tr>`;
}

export function GroupsScreen({ rows, state, go, to }) {
  const [limit, setLimit] = useState(40);
  const end = useRef(null);
  const words = (state.q || "").toLowerCase();
  const show = state.show || "all";
  const found = useMemo(() => {
    const kept = (rows || []).filter((row) => (show === "all" ? true : show === "live" ? row.members > 0 : row.severity === show)
      && (!words || row.group.toLowerCase().includes(words) || row.verdicts.some(([kind]) => kindText(kind).includes(words))));
    return ordered(kept, state.sort);
  }, [rows, words, show, state.sort]);
  useEffect(() => {
    const watcher = new IntersectionObserver(([seen]) => { if (seen.isIntersecting) setLimit((n) => n + 200); }, { rootMargin: "600px" });
    if (end.current) watcher.observe(end.current);
    return () => watcher.disconnect();
  }, [found.length > limit]);
  const count = (severity) => (rows || []).filter((row) => row.severity === severity).length;
  const chips = [["all", "All", rows?.total ?? rows?.length], ["problem", "Problems", count("problem")], ["warning", "Warnings", count("warning")], ["live", "With members", (rows || []).filter((row) => row.members > 0).length]];
  return html`
    <div class="head"><h1>Groups</h1>
      <input id="search" type="search" placeholder="Search groups and verdicts  ( / )" aria-label="Search groups" value=${state.q || ""}
        onInput=${(event) => go({ ...state, q: event.target.value || undefined }, false)} />
      <div class="chips" role="group" aria-label="Filter">
        ${chips.map(([name, label, n]) => html`<button class="chip" aria-pressed=${show === name} onClick=${() => go({ ...state, show: name === "all" ? undefined : name })}>${label} <span class="count">${n ?? "…"}</span></button>`)}
      </div>
    </div>
    ${rows === null ? html`<p class="quiet">Reading…</p>` : html`
    <div class="wide"><table class="groups cards" aria-label="Groups, the worst first">
      <thead><tr>${COLUMNS.map(([name, label, kind]) => html`<th scope="col" class=${kind} aria-sort=${(state.sort || "worst") === name ? "descending" : undefined}>
        <button class="plain sort" onClick=${() => go({ ...state, sort: name === "worst" ? undefined : name })}>${label}</button></th>`)}</tr></thead>
      <tbody>${found.slice(0, limit).map((row) => html`<${Row} key=${row.group} row=${row} to=${to} />`)}</tbody>
    </table></div>
    ${found.length === 0 && html`<p class="empty">${rows.length === 0 ? "No groups are known here yet. They appear when a consumer joins, or commits." : "No group fits the search."}</p>`}
    ${found.length > limit && html`<p ref=${end} class="quiet">${found.length - limit} more…</p>`}`}`;
}
