// What can be done to a group: asked first, with a preview of exactly what will happen.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { change } from "./api.js";
import { number, printable } from "./format.js";

const TITLES = { "reset-offsets": "Reset offsets", "remove-member": "Remove a member", "delete-group": "Delete the group" };
const MODES = [["to-earliest", "to the first record"], ["to-latest", "to the end"], ["to-current", "to where it is (pins it)"], ["to-offset", "to an offset", "number"], ["shift-by", "by so many records", "number"], ["to-datetime", "to a time (UTC)", "datetime-local"], ["by-duration", "back by a duration, such as 2h", "text"]];

export function Changes({ group, what, close }) {
  const [mode, setMode] = useState("to-earliest");
  const [value, setValue] = useState("");
  const [topics, setTopics] = useState("");
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState("");
  const [done, setDone] = useState(null);
  const [busy, setBusy] = useState(false);
  const dialog = useRef(null);
  useEffect(() => { dialog.current.showModal(); if (what.do !== "reset-offsets") look(); }, []);
  const asked = () => ({ group, do: what.do, member: what.member, mode, value, topics: topics.split(/[\s]+/).filter(Boolean) });
  const step = async (work) => { setBusy(true); setError(""); try { await work(); } catch (failure) { setError(failure.message); setPlan(null); } setBusy(false); };
  const look = () => step(async () => setPlan(await change("preview", asked())));
  const execute = () => step(async () => setDone(await change("execute", { ...asked(), plan: plan.plan })));
  const kind = MODES.find(([name]) => name === mode)[2];
  const changed = (set) => (event) => { set(event.target.value); setPlan(null); };
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="dialog-title">
    <h2 id="dialog-title">${TITLES[what.do]}: <span class="name">${printable(what.name || group)}</span></h2>
    ${done ? html`<p role="status"><strong>Done.</strong> ${done.says.map(printable).join(" ")}</p>` : html`
      ${what.do === "reset-offsets" && html`<p class="form"><label>Where to <select value=${mode} onChange=${changed(setMode)}>${MODES.map(([name, label]) => html`<option value=${name}>${label}</option>`)}</select></label>
        ${kind && html`<label>Value <input type=${kind} step="1" value=${value} onInput=${changed(setValue)} /></label>`}
        <label>Topics <input type="text" placeholder="all that it has committed" value=${topics} onInput=${changed(setTopics)} /></label><button onClick=${look} disabled=${busy}>Preview</button></p>`}
      ${error && html`<p class="notice problem" role="alert"><strong>${printable(error)}</strong></p>`}
      ${plan && html`<div role="status"><p>This is what will happen:</p><ul>${plan.says.map((one) => html`<li>${printable(one)}</li>`)}</ul>
        ${plan.rows.length > 0 && html`<div class="wide tall"><table><thead><tr>${plan.columns.map((one) => html`<th scope="col">${one}</th>`)}</tr></thead><tbody>${plan.rows.slice(0, 500).map((row) => html`<tr>${row.map((cell) => html`<td>${typeof cell === "number" ? number(cell) : cell === null ? "–" : printable(cell)}</td>`)}</tr>`)}</tbody></table></div>`}</div>`}`}
    <p class="buttons end"><button onClick=${() => dialog.current.close()}>${done ? "Close" : "Do nothing"}</button>
      ${plan && !done && html`<button class="danger" onClick=${execute} disabled=${busy}>${TITLES[what.do]}</button>`}</p>
  </dialog>`;
}
