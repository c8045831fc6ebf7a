// What the page asks of the server, and what it hears of by itself.

export class Failed extends Error {}

async function answered(response) {
  if (response.ok) return response.json();
  let sentence = `the console answered ${response.status}`;
  try { sentence = (await response.json()).error || sentence; } catch { /* not JSON: the status has to do */ }
  throw new Failed(sentence);
}

export async function ask(path, query = {}, signal = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const text = new URLSearchParams(given).toString();
  return answered(await fetch(`/api/${path}${text ? `?${text}` : ""}`, { signal }));
}

export async function change(step, body) {
  const headers = { "content-type": "application/json", "x-kohort-change": "1" };
  return answered(await fetch(`/api/changes/${step}`, { method: "POST", headers, body: JSON.stringify(body) }));
}

// `heard(news)` for every message; `lost(isLost)` when the connection goes and comes.
export function listen(heard, lost) {
  const source = new EventSource("/api/events");
  source.onmessage = (message) => { lost(false); heard(JSON.parse(message.data)); };
  source.onerror = () => lost(true);
  return () => source.close();
}
