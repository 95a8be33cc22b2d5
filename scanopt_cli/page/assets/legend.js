// What all signs mean, drawn by what draws the picture, and the keys.

function legend(graphs, words, remarks, keys) {
  return [
    html("h3", {}, "What the signs mean"),
    ...legendPart("Boxes", Object.entries(BOXES).map(([kind, { word, text }]) =>
      [sampleBox(kind), [html("b", {}, word), `: ${text}`]])),
    ...legendPart("What a pass changed", Object.entries(STATUS).map(([status, { word, text }]) =>
      [sampleBox("op", status), [html("b", {}, word), `: ${text}`]]).concat([
      [countsText({ only: 4, gone: 7, changed: 2 }),
        "below a pass: how many parts are new, gone and changed"],
    ])),
    ...legendPart("Slots", [
      ...slotKinds(graphs).map((kind) => [samplePort(kind), [html("b", {}, kind), `: ${
        PORTS[kind]?.text ?? words[kind]?.summary ?? ROLES[roleOf(kind)]}`]]),
      ...Object.entries(ROLES).map(([role, text]) => [sampleStripe(role), text]),
      [sampleBar(), "how much memory the buffer takes, beside the largest one; a length that is "
        + "not known counts as 100"],
      [tapsText({ taps: [-1, 0], out_taps: [1] }), "the steps that a step reads of it, t being its "
        + "own, and behind an arrow those that it writes"],
      [html("span", { class: "cell read" }, "t"), "in the details: read by a step"],
      [html("span", { class: "cell written" }, "t"), "in the details: written by a step"],
    ]),
    ...legendPart("Lines and marks", [
      [sampleEdge(""), "an edge: what is at its tip reads what is at its beginning"],
      [sampleEdge("touched"), "an edge of what is selected"],
      [sampleBox("op", "", "selected"), "selected; at a slot, what belongs to it in the body"],
      ...Object.values(MARKS).map(({ sign, text }) => [sign, text]),
      ["▁▂▄▇", "values of the steps, from the least to the largest; × is NaN or infinite"],
    ]),
    ...legendPart("Remarks", Object.entries(remarks).map(([kind, { sign, word }]) =>
      [html("span", { class: `remarked remark-${kind}` }, html("b", { class: "kind" }, sign)),
        word])),
    ...legendPart("Keys", keys),
  ];
}

function legendPart(title, rows) {
  return [html("h4", {}, title), html("dl", { class: "legend" }, rows.flatMap(([sample, text]) =>
    [html("dt", {}, sample), html("dd", {}, text)]))];
}

// The kinds of slots that the page shows.
function slotKinds(graphs) {
  const kinds = new Set(graphs.flatMap((one) => [...one.levels.values()].flatMap((level) =>
    level.boxes.flatMap((box) => box.ports.map((port) => port.kind)))));
  return [...Object.keys(PORTS), ...kinds].filter((kind, n, all) =>
    kinds.has(kind) && all.indexOf(kind) === n);
}

const SAMPLE = { open: new Set(), allPorts: new Set(), largest: 1, copies: new Map() };

const sample = (width, height, ...children) =>
  svg("svg", { class: "sample", width, height, "aria-hidden": "true" }, ...children);

function sampleBox(kind, status = "", more = "") {
  const port = { ...PORT, name: "h", kind: kind === "loop" ? "sit_sot" : "input" };
  const box = { ...DEFAULTS, id: 0, kind, label: kind === "op" ? "exp" : kind,
    ports: kind === "loop" || kind === "graph" ? [port] : [] };
  const part = kind === "group"
    ? { key: 0, group: { label: "2 nodes: 2 exp", members: [] }, inside: { only: 0, changed: 0 } }
    : { key: 0, box };
  Object.assign(part, { x: 2, y: 9, path: "", level: "", status: status || undefined });
  measure(part, { ...SAMPLE, graphs: null });
  if (part.group || part.rows) part.width = 110;
  const drawn = drawBox(part, { ...SAMPLE, isBefore: status === "gone" });
  for (const name of ["role", "tabindex", "data-path", "aria-expanded", "aria-label"]) {
    drawn.removeAttribute(name);
  }
  if (more) drawn.classList.add(more);
  return sample(part.width + 14, part.height + 16, drawn);
}

const samplePort = (kind) => {
  const part = { width: 72, columns: { kind: 0, name: 0, type: 0, bar: 0 } };
  const row = drawRow({ port: { ...PORT, kind, name: "", fed_by: "" }, place: 0, y: 0 }, part, SAMPLE);
  row.removeAttribute("role");
  row.removeAttribute("data-port");
  return sample(72, ROW, row);
};

const sampleStripe = (role) => sample(12, ROW, svg("g", { class: `port role-${role}` },
  svg("rect", { class: "stripe", x: 2, y: 1, width: 4, height: ROW - 2 })));

const sampleBar = () => sample(BAR + 2, ROW, svg("g", { class: "port role-state" },
  ...drawBar(1, 0.6)));

const sampleEdge = (kind) => sample(50, 14, drawEdge({
  points: [{ x: 2, y: 7 }, { x: 46, y: 7 }], ends: [], from: { path: "" }, to: { path: "" },
}, kind));
