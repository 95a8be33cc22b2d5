// What is known of the box or slot that is selected.

// What `scanopt explain` has no topic for.
const KINDS = {
  index: "The number of the step",
  traced: "A value of each step, all of which are kept",
  steps: "How many steps the loop runs",
  input: "An input of the inner graph",
  output: "An output of the inner graph",
};

const READ_ONLY = new Set(["seq", "non_seq", "constant", "index", "input"]);

function describeSelection(selected, graphs, stage, act) {
  const found = located(graphs, graphs.stages[stage].level, selected?.path);
  if (!found) return [html("p", { class: "faint" }, "It is not in the graph at this stage.")];
  if (found.group) return describeGroup(found.group, selected, act);
  const { box, level } = found;
  const port = selected.port === undefined ? null : box.ports[selected.port];
  return port ? describePort(port, box, selected, level, act) : describeBox(box, selected, level, act);
}

// The box that a path leads to, and its level.
function located(graphs, levelName, path) {
  if (!path) return null;
  let level = graphs.level(levelName);
  const keys = path.split("/").slice(1);
  for (const [n, key] of keys.entries()) {
    const [id, groupId] = key.split("#");
    const box = level.byId.get(Number(id));
    if (!box) {
      const group = groupOf(level.shown, groupId ?? key);
      return group ? { group, level } : null;
    }
    if (n === keys.length - 1) return { box, level };
    level = graphs.level(box.body);
    if (!level) return null;
  }
  return null;
}

function groupOf(members, id) {
  for (const member of members) {
    if (typeof member === "number") continue;
    const found = member.id === id ? member : groupOf(member.members, id);
    if (found) return found;
  }
  return null;
}

function facts(pairs) {
  const rows = pairs.filter(([, value]) => value !== "" && value !== null && value?.length !== 0);
  return html("dl", {}, rows.flatMap(([name, value]) => [
    html("dt", {}, name), html("dd", {}, value),
  ]));
}

const code = (content) => html("code", {}, content);

function describeGroup(group, selected, act) {
  return [
    html("h3", {}, `Group of ${plural(group.count, "node")}`),
    html("p", {}, group.label),
    button("Open", "Open this group (Enter)", () => act.toggle(selected.path)),
  ];
}

function describeBox(box, selected, level, act) {
  const kind = { op: "Operation", loop: "Loop", graph: "Inner graph", input: "Input",
    output: "Output" }[box.kind];
  const title = html("h3", {}, `${kind} `, code(box.label));
  const parts = [title, facts([
    ["computes", box.kind === "op" || box.kind === "output" ? code(box.text) : ""],
    ["type", box.type],
    ["written in", box.place],
    ["reads", readTexts(box, level, act, selected)],
    ["read by", readers(box, level, act, selected)],
  ])];
  if (box.facts.length) parts.push(html("ul", {}, box.facts.map((fact) => html("li", {}, fact))));
  const copies = act.copies.get(box.body) ?? 1;
  if (copies > 1) parts.push(html("p", {}, `${copies} boxes have this body, which is drawn once.`));
  if (box.body) {
    parts.push(button("Open or fold", "Open or fold the body (Enter)", () =>
      act.toggle(selected.path)));
  }
  if (box.slot >= 0) {
    const around = selected.path.split("/").slice(0, -1).join("/");
    parts.push(button("Its slot", "Select the slot of the loop that it belongs to", () =>
      act.select({ path: around, port: box.slot })));
  }
  return parts;
}

function describePort(port, box, selected, level, act) {
  const parts = [
    html("h3", {}, "Slot ", code(port.name), ` of ${box.label}`),
    ...meaning(port.kind, act.words),
  ];
  if (port.taps.length) parts.push(timeLine(port));
  parts.push(facts([
    ["type", port.type],
    ["fed by", port.fed_by ? code(port.fed_by) : ""],
    [READ_ONLY.has(port.kind) ? "a step reads" : "a step makes",
      port.inside ? code(port.inside) : ""],
    ["read by", port.read_by.map((reader) => html("div", {}, code(reader)))],
    ["rows kept", [port.rows, port.note].filter(Boolean).join("; ")],
    ["memory", port.memory],
    ["values", port.values ? html("span", { class: "values" }, port.values) : ""],
  ]));
  const around = selected.path.split("/").slice(0, -1).join("/");
  const linked = [
    ...box.edges.filter((edge) => edge.port === selected.port).map((edge) => edge.box),
    ...level.boxes.filter((other) => other.edges.some((edge) =>
      edge.box === box.id && edge.from_port === selected.port)).map((other) => other.id),
  ];
  parts.push(html("p", { class: "links" }, [...new Set(linked)].map((id) =>
    link(level.byId.get(id), around, act))));
  return parts;
}

// What a kind of slot is: in a sentence, and folded, at length.
function meaning(kind, words) {
  const word = words[kind];
  const summary = html("p", {}, html("strong", {}, kind), `: ${word?.summary ?? KINDS[kind] ?? ""}`);
  if (!word) return [summary];
  return [summary, html("details", { class: "meaning" },
    html("summary", {}, `what is ${kind}?`), ...paragraphs(word.text))];
}

// The paragraphs and pictures of a topic, without its examples.
function paragraphs(topic) {
  return topic.split(/\n{2,}/)
    .filter((part) => !/^ *\$|^Also called|^See also|^ {6}/.test(part))
    .map((part) => (part.startsWith("    ")
      ? html("pre", {}, part.replace(/^ {4}/gm, ""))
      : html("p", {}, ...withCode(part.replace(/\s+/g, " ")))));
}

// What signs and colours mean.
function signsAndColours() {
  const rows = [
    ["+ (blue frame)", "new: the pass made it, or what it reads"],
    ["~ (dashed)", "changed: it reads or does something else than before"],
    ["− (dotted)", "gone after the pass; shown in the graph before it"],
    ["+4 −7 ~2", "below a pass: how many parts are new, gone and changed"],
    ["dashed, stacked", "a group of operations that is folded; a click opens it"],
    ["blue stripe", "a slot that a step reads: a sequence"],
    ["orange stripe", "a state"],
    ["green stripe", "an output of which rows are kept"],
    ["grey stripe", "the same in each step"],
    ["bar", "how much memory the buffer takes, beside the largest one; a length that is not known "
      + "counts as 100"],
    ["✂", "the buffer does not hold every step"],
    ["t-1, t → t+1", "the taps that a step reads, and of a mit_mot those that it writes"],
    ["remarks", "~ done, = not done and why, ? noticed, ! warning, ✗ error"],
  ];
  return [html("h3", {}, "Signs and colours"), facts(rows)];
}

function link(box, around, act) {
  return button(cut(mainText(box), 40), `Go to ${mainText(box)}`,
    () => act.reveal(`${around}/${box.id}`), { class: "link" });
}

function readTexts(box, level, act, selected) {
  const around = selected.path.split("/").slice(0, -1).join("/");
  const ids = [...new Set(box.edges.map((edge) => edge.box))];
  return ids.slice(0, 12).map((id) => link(level.byId.get(id), around, act));
}

function readers(box, level, act, selected) {
  const around = selected.path.split("/").slice(0, -1).join("/");
  const found = level.boxes.filter((other) => other.edges.some((edge) => edge.box === box.id));
  return found.slice(0, 12).map((other) => link(other, around, act));
}

// A row of cells, one for each step near t: those that a step reads, and that it writes.
function timeLine(port) {
  const written = port.out_taps.length ? port.out_taps : [0];
  const all = [...port.taps, ...written, 0];
  const first = Math.min(...all);
  const last = Math.max(...all);
  if (last - first > 40) return html("p", {}, `taps ${tapsText(port)}`);
  const cells = [];
  for (let tap = first; tap <= last; tap++) {
    const read = port.taps.includes(tap);
    const writes = written.includes(tap);
    const what = read && writes ? "read, written" : read ? "read" : writes ? "written" : "";
    cells.push(html("span", { class: `cell${read ? " read" : ""}${writes ? " written" : ""}` },
      html("b", {}, tapText(tap)), html("small", {}, what)));
  }
  return html("div", { class: "time", role: "img", "aria-label": `taps: ${tapsText(port)}` }, cells);
}
