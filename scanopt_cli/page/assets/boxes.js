// How large boxes are, and how they are drawn.

const LETTER = 7.25; // the width of a letter of the monospaced font at 12 pixels
const SMALL = 6.1; // and at 10 pixels
const ROW = 20;
const PAD = 10;
const BAR = 60;
const MOST_ROWS = 14;
const LONGEST = { op: 34, input: 40, output: 40, name: 28, type: 26 };

// Gives a part its size, and the rows of a loop.
function measure(part, view) {
  if (part.group) {
    const lines = groupLines(part);
    part.boxes = leaves(part.group).map((id) => view.graphs.level(part.level).byId.get(id));
    part.width = Math.max(...lines.map((line) => line.length)) * SMALL + 2 * PAD + 14;
    part.height = lines.length * 14 + 12;
    return;
  }
  const { box } = part;
  if (!box.ports.length) {
    const text = mainText(box);
    const width = Math.max(text.length * LETTER, box.type.length * SMALL);
    part.width = width + 2 * PAD;
    part.height = box.type ? 38 : 26;
    return;
  }
  part.copies = view.copies.get(box.body) ?? 1;
  part.head = 26 + (box.place ? 14 : 0) + (part.copies > 1 ? 14 : 0);
  const all = view.allPorts.has(part.path) || box.ports.length <= MOST_ROWS;
  const shown = all ? box.ports.length : MOST_ROWS - 1;
  part.rows = box.ports.slice(0, shown).map((port, n) => ({ port, place: n }));
  if (!all) part.rows.push({ more: box.ports.length - shown });
  part.rows.forEach((row, n) => (row.y = part.head + n * ROW));
  part.rowOf = (port) => Math.min(port, part.rows.length - 1);
  part.columns = columns(part.rows);
  const title = `${box.label}  ${box.facts[0] ?? ""}`.length * LETTER + 58;
  const place = box.place.length * SMALL + 2 * PAD + 16;
  const rows = part.columns.width;
  part.width = Math.max(title, place, rows, 150);
  part.height = part.head + part.rows.length * ROW + 6;
  if (part.body) {
    part.width = Math.max(part.width, part.body.width + 12);
    part.height += part.body.height + 10;
  }
}

const mainText = (box) =>
  cut(box.kind === "op" ? box.text || box.label : box.label, LONGEST[box.kind] ?? 34);

const wholeText = (box) =>
  [box.kind === "op" ? `${box.label}: ${box.text}` : box.label, box.type, box.place, box.raises]
    .filter(Boolean).join("\n");

function groupLines(part) {
  const [count, names] = part.group.label.split(": ");
  const { only, changed } = part.inside;
  const changes = countsText({ only: only || undefined, changed: changed || undefined });
  return [`${count}${changes ? `  ${changes}` : ""}`, cut(names ?? "", 40)];
}

function columns(rows) {
  const ports = rows.filter((row) => row.port).map((row) => row.port);
  const widest = (text) => Math.max(0, ...ports.map((port) => text(port).length));
  const kind = widest((port) => port.kind) * SMALL + 8;
  const name = Math.min(LONGEST.name, widest(nameText)) * LETTER + 10;
  const type = Math.min(LONGEST.type, widest((port) => port.type)) * SMALL + 8;
  const bar = ports.some((port) => port.size) ? BAR + 8 : 0;
  return { kind, name, type, bar, width: kind + name + type + bar + 2 * PAD };
}

const nameText = (port) =>
  port.kind === "steps" ? port.fed_by : `${port.name}${tapsText(port) ? `[${tapsText(port)}]` : ""}`;

function drawBox(part, view) {
  const gone = view.isBefore && part.status === "only";
  const status = gone ? "gone" : part.status;
  const classes = ["box", part.group ? "group" : part.box.kind, status ? `is-${status}` : ""];
  const drawn = svg("g", {
    class: classes.filter(Boolean).join(" "),
    transform: `translate(${part.x} ${part.y})`,
    tabindex: "-1",
    role: "button",
    "data-path": part.path,
    "aria-label": spoken(part, status),
    "aria-expanded": part.box?.body ? String(Boolean(part.body)) : part.group ? "false" : undefined,
  });
  drawn.append(svg("title", {}, part.group ? part.group.label : wholeText(part.box)));
  const radius = part.box?.kind === "input" || part.box?.kind === "output" ? 12 : 4;
  if (part.group) drawn.append(rect(part, 4, "under", 3));
  drawn.append(rect(part, radius, "frame", 0));
  if (part.group) {
    groupLines(part).forEach((line, n) => drawn.append(text(PAD, 18 + 14 * n, line, "small")));
    drawn.append(text(part.width - 14, 18, MARKS.folded.sign, "fold"));
  } else if (part.rows) drawLoop(drawn, part, view);
  else {
    drawn.append(text(PAD, 17, mainText(part.box), "main"));
    if (part.box.type) drawn.append(text(PAD, 31, part.box.type, "small faint"));
  }
  if (status) drawn.append(sign(part, status));
  return drawn;
}

function drawLoop(drawn, part, view) {
  const { box } = part;
  drawn.append(svg("rect", { class: "head", width: part.width, height: part.head - 4, rx: 4 }));
  drawn.append(text(PAD, 18, MARKS[part.body ? "open" : "folded"].sign, "fold"));
  drawn.append(text(PAD + 16, 18, box.label, "title"));
  drawn.append(text(part.width - PAD, 18, box.facts[0] ?? box.text, "small end"));
  let y = 32;
  if (box.place) {
    drawn.append(text(PAD + 16, y, box.place, "small faint"));
    y += 14;
  }
  if (part.copies > 1) {
    drawn.append(text(PAD + 16, y, `one of ${part.copies} equal ones`, "small faint"));
  }
  for (const row of part.rows) drawn.append(drawRow(row, part, view));
  if (part.body) {
    const inner = svg("g", {
      class: "body",
      transform: `translate(6 ${part.head + part.rows.length * ROW + 8})`,
    });
    inner.append(svg("rect", {
      class: "inside", width: part.width - 12, height: part.body.height, rx: 3,
    }));
    drawLevel(inner, part.body, view);
    drawn.append(inner);
  }
}

function drawRow(row, part, view) {
  if (row.more) {
    const more = `${MARKS.more.sign} ${row.more} more`;
    return svg("g", { class: "port more", transform: `translate(0 ${row.y})`, "data-more": true },
      svg("rect", { class: "hit", width: part.width, height: ROW }),
      text(PAD, 14, more, "small"));
  }
  const { port } = row;
  const { kind, name, type } = part.columns;
  const drawn = svg("g", {
    class: `port kind-${port.kind} role-${roleOf(port.kind)}`,
    transform: `translate(0 ${row.y})`,
    "data-port": row.place,
    role: "button",
    "aria-label": `${port.kind} ${nameText(port)} ${port.type}`,
  });
  drawn.append(svg("rect", { class: "hit", width: part.width, height: ROW }));
  drawn.append(svg("rect", { class: "stripe", width: 4, height: ROW - 2, y: 1 }));
  drawn.append(text(PAD, 14, port.kind, "small kind"));
  drawn.append(text(PAD + kind, 14, cut(nameText(port), LONGEST.name), "name"));
  drawn.append(text(PAD + kind + name, 14, cut(port.type, LONGEST.type), "small faint"));
  if (port.size) {
    const x = PAD + kind + name + type;
    drawn.append(...drawBar(x, port.size / view.largest));
    if (port.note.includes("trimmed")) {
      drawn.append(text(x + BAR + 1, 14, MARKS.trimmed.sign, "small"));
    }
  }
  return drawn;
}

const drawBar = (x, share) => [
  svg("rect", { class: "bar-room", x, y: 6, width: BAR, height: 8 }),
  svg("rect", { class: "bar", x, y: 6, width: Math.max(2, BAR * share), height: 8 }),
];

function drawLevel(into, laid, view) {
  for (const edge of laid.edges) into.append(drawEdge(edge));
  for (const part of laid.parts) into.append(drawBox(part, view));
}

function drawEdge(edge, kind = "") {
  const [first, ...rest] = edge.points;
  const path = first ? `M${first.x} ${first.y}${rest.map((p) => `L${p.x} ${p.y}`).join("")}` : "";
  const last = edge.points.at(-1);
  const drawn = svg("g", {
    class: `edge ${kind}`.trim(), "data-from": edge.from.path, "data-to": edge.to.path,
    "data-ends": edge.ends.map((end) => end.join(":")).join(" "),
  }, svg("path", { d: path }));
  if (last) drawn.append(svg("path", { class: "tip", d: `M${last.x} ${last.y}l-6 -3v6z` }));
  return drawn;
}

const rect = (part, rx, kind, shift) =>
  svg("rect", { class: kind, x: shift, y: shift, width: part.width, height: part.height, rx });

const text = (x, y, content, kind) => svg("text", { x, y, class: kind }, content);

function sign(part, status) {
  return svg("g", { class: "sign", transform: `translate(${part.width - 2} 0)` },
    svg("circle", { r: 8 }), svg("text", { y: 4 }, STATUS[status].sign));
}

function spoken(part, status) {
  const state = status ? `, ${STATUS[status].word}` : "";
  if (part.group) return `group of ${part.group.label}${state}`;
  const { box } = part;
  const kind = BOXES[box.kind].word;
  const more = box.ports.length ? `, ${box.facts.join(", ")}` : `, ${box.type}`;
  return `${kind} ${box.kind === "op" ? `${box.label}: ${box.text}` : box.label}${more}${state}`;
}
