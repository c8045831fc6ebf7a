// What the address says: screen, group, span, selection, search. A link to a moment is the address, nothing else.

const KNOWN = ["screen", "group", "from", "to", "rebalance", "q", "show", "sort", "colour"];

export function read() {
  const given = new URLSearchParams(location.search);
  const found = {};
  for (const name of KNOWN) if (given.has(name)) found[name] = given.get(name);
  for (const name of ["from", "to", "rebalance"]) {
    if (name in found) found[name] = /^\d{1,16}$/.test(found[name]) ? Number(found[name]) : undefined;
  }
  if (found.from >= found.to) delete found.from;
  return found;
}

export function link(state) {
  const given = KNOWN.filter((name) => state[name] !== undefined && state[name] !== null && state[name] !== "");
  const text = new URLSearchParams(given.map((name) => [name, String(state[name])])).toString();
  return text ? `/?${text}` : "/";
}

// Steps that a reader wants to go back over are pushed; a span that is being dragged is not.
export function write(state, push) {
  const next = link(state);
  if (next === location.pathname + location.search) return;
  history[push ? "pushState" : "replaceState"](null, "", next);
}
