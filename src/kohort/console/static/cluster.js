// The cluster: brokers and what they coordinate, take-overs, topics and who reads them, who fills the offsets topic.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { ask } from "./api.js";
import { moment, number, printable } from "./format.js";

const Table = ({ columns, rows, label }) => html`<div class="wide"><table class="cards" aria-label=${label}><thead><tr>${columns.map(([name, kind]) => html`<th scope="col" class=${kind}>${name}</th>`)}</tr></thead>
  <tbody>${rows.map((row) => html`<tr>${row.map((cell, i) => html`<td class=${columns[i][1]} data-label=${columns[i][0]}>${cell}</td>`)}</tr>`)}</tbody></table></div>`;

export function ClusterScreen({ news, status, to }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const [words, setWords] = useState("");
  const [limit, setLimit] = useState(100);
  useEffect(() => { ask("cluster").then((one) => { setFound(one); setError(""); }).catch((failure) => setError(failure.message)); }, [Math.floor((news?.now_ms ?? 0) / 5000)]);
  if (error) return html`<h1>Cluster</h1><p class="notice problem">${error}</p>`;
  if (!found) return html`<h1>Cluster</h1><p class="quiet">Reading…</p>`;
  const topics = found.topics.filter((one) => one.topic.toLowerCase().includes(words.toLowerCase())).sort((a, b) => b.unread.length - a.unread.length || (a.topic < b.topic ? -1 : 1));
  const links = (groups) => groups.slice(0, 5).map((name, i) => html`${i > 0 && ", "}<a ...${to({ group: name })}>${printable(name)}</a>`);
  return html`<h1>Cluster</h1>
    ${found.brokers ? html`<section class="card"><h2>Brokers</h2><p class="quiet">Cluster ${printable(found.cluster_id ?? "–")}; broker ${found.controller} is the controller.</p>
      <${Table} label="Brokers" columns=${[["Broker"], ["Address"], ["Rack"], ["Coordinates groups", "n"], ["Leads offsets partitions", "n"]]} rows=${found.brokers.map((one) => [one.id, printable(one.address), one.rack ? printable(one.rack) : "–", number(one.groups), number(one.offsets_partitions)])} />
      ${found.groups_without_coordinator > 0 && html`<p class="notice problem"><strong>${found.groups_without_coordinator} groups have no coordinator:</strong> their partition of __consumer_offsets has no leader. Start the broker that has it.</p>`}</section>
      <section class="card"><h2>Take-overs</h2>${found.takeovers.length === 0 ? html`<p class="quiet">No coordinator has moved since this console began to look.</p>` : html`<${Table} label="Take-overs" columns=${[["When"], ["Offsets partition", "n"], ["From broker", "n"], ["To broker", "n"]]} rows=${[...found.takeovers].reverse().map((one) => [moment(one.at), one.partition, one.from < 0 ? "nobody" : one.from, one.to < 0 ? "nobody" : one.to])} />`}</section>`
    : html`<p class="quiet">${status?.live ? "The brokers have not answered yet." : "A kept history knows topics and groups; brokers are known of a live cluster only."}</p>`}
    <section class="card"><div class="bar"><h2>Topics</h2><input type="search" id="search" placeholder="Search topics" aria-label="Search topics" value=${words} onInput=${(event) => setWords(event.target.value)} /></div>
      ${topics.length === 0 ? html`<p class="quiet">None.</p>` : html`<${Table} label="Topics" columns=${[["Topic"], ["Partitions", "n"], ["Records written", "n"], ["Without a reader"], ["Read by"]]} rows=${topics.slice(0, limit).map((one) => [html`<span class="name">${printable(one.topic)}</span>`, one.partitions, number(one.end), one.unread.length ? html`<span class="badge warning">${one.unread.length === one.partitions ? "all" : one.unread.slice(0, 12).join(", ")}${one.unread.length > 12 && one.unread.length < one.partitions ? "…" : ""}</span>` : html`<span class="quiet">none</span>`, one.groups.length ? html`${links(one.groups)}${one.groups.length > 5 ? ` and ${one.groups.length - 5} more` : ""}` : html`<span class="quiet">nobody now</span>`])} />`}
      ${topics.length > limit && html`<button onClick=${() => setLimit(limit + 500)}>Show more of ${topics.length}</button>`}</section>
    <section class="card"><h2>Talkers: who fills __consumer_offsets</h2>${found.talkers.length === 0 ? html`<p class="quiet">Nobody has committed since the reading began.</p>` : html`<${Table} label="Talkers" columns=${[["Group"], ["Commits", "n"], ["Share", "n"]]} rows=${found.talkers.slice(0, 20).map((one) => [html`<a class="name" ...${to({ group: one.group })}>${printable(one.group)}</a>`, number(one.commits), `${(one.share * 100).toFixed(1)} %`])} />`}
      ${found.skipped_records > 0 && html`<p class="quiet">${number(found.skipped_records)} records were of another kind, or could not be read, and are left out.</p>`}</section>`;
}
