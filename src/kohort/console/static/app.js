// The page: which screen is shown, what is live, the keys. Each screen is a file of its own.

import { html, render, useCallback, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { ask, listen } from "./api.js";
import { GroupsScreen } from "./groups.js";
import { link, read, write } from "./state.js";

const FIRST_ROWS = 50;  // as index.html asks for before any script runs
const SCREENS = { group: () => import("./group.js"), cluster: () => import("./cluster.js") };
const THEMES = { system: "dark", dark: "light", light: "system" };

function useTheme() {
  const [theme, setTheme] = useState(() => document.documentElement.dataset.theme || "system");
  const turn = () => {
    const next = THEMES[theme];
    if (next === "system") { delete document.documentElement.dataset.theme; localStorage.removeItem("kohort-theme"); }
    else { document.documentElement.dataset.theme = next; localStorage.setItem("kohort-theme", next); }
    setTheme(next);
  };
  return [theme, turn];
}

// Rows of all groups, kept up to date: the worst first, then all, then only what changed.
function useGroups(news) {
  const known = useRef({ rows: new Map(), revision: 0, busy: false, all: false });
  const [rows, setRows] = useState(null);
  useEffect(() => {
    const kept = known.current;
    if (kept.busy || (rows !== null && news && news.revision === kept.revision && kept.all)) return;
    kept.busy = true;
    const next = () => ask("groups", kept.all ? { since: kept.revision } : { most: rows === null && kept.rows.size === 0 ? FIRST_ROWS : undefined }).then((found) => {
      if (found.revision < kept.revision) kept.rows.clear();  // the console was started anew
      for (const row of found.rows) kept.rows.set(row.group, row);
      kept.revision = found.revision; kept.all = !found.more;
      setRows(Object.assign([...kept.rows.values()], { total: found.total }));
      return found.more ? new Promise((done) => setTimeout(done, 0)).then(next) : undefined;
    });
    next().catch(() => {}).finally(() => { kept.busy = false; });
  }, [news]);
  return rows;
}

// The table of groups comes first: what the other screens need is loaded when one is opened, or when the table stands.
function useScreen(screen, shown) {
  const [made, setMade] = useState({});
  const load = (name) => SCREENS[name]().then((found) => setMade((before) => ({ ...before, [name]: Object.values(found)[0] })), () => {});
  useEffect(() => { if (screen in SCREENS) load(screen); }, [screen]);
  useEffect(() => { if (shown) requestIdleCallback(() => Object.keys(SCREENS).forEach(load), { timeout: 2000 }); }, [shown]);
  return made[screen];
}

function Notices({ status, lost }) {
  const notices = [...(status?.notices || [])];
  if (lost) notices.unshift({ severity: "problem", text: "The console itself does not answer.", advice: "Is kohort console still running? This page goes on by itself when it is back." });
  if (status && status.progress !== null) notices.push({ severity: "note", text: `The past is being read: ${Math.round(status.progress * 100)} %.`, advice: "What is known is shown already." });
  return html`<div role="status" aria-live="polite">
    ${notices.map((one) => html`<p class="notice ${one.severity}"><strong>${one.text}</strong> ${one.advice}</p>`)}
  </div>`;
}

function App() {
  const [state, setState] = useState(read);
  const [status, setStatus] = useState(null);
  const [news, setNews] = useState(null);
  const [lost, setLost] = useState(false);
  const [theme, turnTheme] = useTheme();
  const rows = useGroups(news);

  const go = useCallback((next, push = true) => setState((before) => {
    const made = typeof next === "function" ? next(before) : next;
    write(made, push);
    return made;
  }), []);

  useEffect(() => {
    const back = () => setState(read());
    addEventListener("popstate", back);
    ask("status").then(setStatus).catch(() => setLost(true));
    const stop = listen((heard) => { setNews(heard); setStatus((before) => ({ ...before, ...heard })); }, setLost);
    return () => { removeEventListener("popstate", back); stop(); };
  }, []);

  useEffect(() => {
    const key = (event) => {
      if (event.target.closest("input, select, textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/") { event.preventDefault(); document.getElementById("search")?.focus(); }
      else if (event.key === "g") go({});
      else if (event.key === "c") go({ screen: "cluster" });
      else if (event.key === "t") turnTheme();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  });

  const screen = state.group !== undefined ? "group" : state.screen === "cluster" ? "cluster" : "groups";
  const Other = useScreen(screen, rows !== null);
  useEffect(() => { document.title = `${screen === "group" ? state.group : screen === "cluster" ? "Cluster" : "Groups"} – kohort`; }, [screen, state.group]);

  const to = (next) => ({ href: link(next), onClick: (event) => { if (!event.metaKey && !event.ctrlKey) { event.preventDefault(); go(next); scrollTo(0, 0); } } });
  const row = useMemo(() => rows?.find((one) => one.group === state.group), [rows, state.group]);
  return html`
    <a class="skip" href="#main">To the content</a>
    <header class="top">
      <a class="brand" ...${to({})}><img src="/static/icon.svg" alt="" width="22" height="22" /> kohort</a>
      <nav aria-label="Screens">
        <a ...${to({})} aria-current=${screen === "groups" ? "page" : undefined}>Groups</a>
        <a ...${to({ screen: "cluster" })} aria-current=${screen === "cluster" ? "page" : undefined}>Cluster</a>
      </nav>
      <span class="source" title=${status?.what}>
        <span class="dot ${lost ? "off" : status?.live ? "live" : ""}"></span>
        ${lost ? "not connected" : status ? `${status.live ? "live" : "history"} · ${status.what}` : "…"}
      </span>
      <button class="plain" onClick=${turnTheme} title="Theme (t)" aria-label=${`Theme: ${theme}`}>${{ system: "◐", dark: "☾", light: "☀" }[theme]}</button>
    </header>
    <main id="main" tabindex="-1">
      <${Notices} status=${status} lost=${lost} />
      ${screen === "groups" && html`<${GroupsScreen} rows=${rows} state=${state} go=${go} to=${to} />`}
      ${screen === "group" && Other && html`<${Other} key=${state.group} row=${row} state=${state} go=${go} to=${to} news=${news} status=${status} theme=${theme} />`}
      ${screen === "cluster" && Other && html`<${Other} news=${news} status=${status} to=${to} rows=${rows} />`}
    </main>
    <footer>All times are UTC. Keys: <kbd>/</kbd> search, <kbd>g</kbd> groups, <kbd>c</kbd> cluster, <kbd>t</kbd> theme; in a timeline <kbd>←</kbd> <kbd>→</kbd> move, <kbd>+</kbd> <kbd>−</kbd> zoom, <kbd>n</kbd> <kbd>p</kbd> next and previous rebalance, <kbd>f</kbd> follow.</footer>`;
}

render(html`<${App} />`, document.getElementById("page"));
