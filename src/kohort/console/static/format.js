// Numbers, times and names for people. Times are UTC, as everywhere in kohort.

export function number(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US");
}

export function compact(value) {
  if (value === null || value === undefined) return "–";
  return value < 10_000 ? value.toLocaleString("en-US")
    : Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 }).format(value);
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(1).replace(/\.0$/, "")} s`;
  const whole = Math.round(s);
  if (whole < 3600) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ""}`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h${whole % 3600 >= 60 ? ` ${Math.floor(whole % 3600 / 60)} min` : ""}`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole % 86400 / 3600)} h`;
}

const pad = (n, width = 2) => String(n).padStart(width, "0");

export function time(ms, withMillis = false) {
  const d = new Date(ms);
  if (Number.isNaN(d.getTime())) return String(ms);
  const clock = `${pad(d.getUTCHours())}:${pad(d.getUTCMinutes())}:${pad(d.getUTCSeconds())}`;
  return withMillis ? `${clock}.${pad(d.getUTCMilliseconds(), 3)}` : clock;
}

export function day(ms) {
  const d = new Date(ms);
  return Number.isNaN(d.getTime()) ? "" : `${d.getUTCFullYear()}-${pad(d.getUTCMonth() + 1)}-${pad(d.getUTCDate())}`;
}

export const moment = (ms) => `${day(ms)} ${time(ms)}`;

// What a terminal or a font would obey or hide becomes visible.
export function printable(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u${pad(c.codePointAt(0).toString(16), 4)}`);
}

function ranges(numbers) {
  const runs = [];
  for (const n of numbers) {
    const last = runs[runs.length - 1];
    if (last && n === last[1] + 1) last[1] = n; else runs.push([n, n]);
  }
  return runs.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(",");
}

export const held = (set) => set.map(([topic, numbers]) => `${printable(topic)} ${ranges(numbers)}`).join("  ");

const KINDS = {
  joined: "a member joined", rejoined: "a member rejoined", leader_rejoined: "the leader rejoined",
  metadata_changed: "a subscription changed", handed_over: "partitions were handed over",
  replaced: "a static member came back", left: "a member left", removed: "a member was removed",
  timed_out: "a member timed out", did_not_rejoin: "a member did not rejoin", did_not_sync: "a member did not sync",
  gone: "a member went", began: "the group began", first_known: "the oldest that is known",
  partitions_came: "partitions came", partitions_moved: "partitions moved", store_failed: "the store failed",
  skew: "uneven assignment", ok: "keeps up",
};
export const kindText = (kind) => KINDS[kind] || kind.replaceAll("_", " ");
