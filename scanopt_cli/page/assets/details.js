// What is known of the box or slot that is selected.

const FEW_LINKS = 12;

function describeSelection(selected, graphs, stage, act) {
  const found = located(graphs, graphs.stages[stage].level, selected?.path);
  if (!found) return [html("p", { class: "faint" }, "It is not in the graph at this stage.")];
  const before = act.isBefore ? [html("p", { class: "faint" }, "In the graph before the pass")] : [];
  return [...before, ...describeFound(found, selected, graphs, act)];
}

function describeFound(found, selected, graphs, act) {
  if (found.group) return describeGroup(found.group, selected, act);
  const { box, level } = found;
  const port = selected.port === undefined ? null : box.ports[selected.port];
  return port ? describePort(port, box, selected, level, graphs, act)
    : describeBox(box, selected, level, act);
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
  const { word } = BOXES[box.kind];
  const kind = word[0].toUpperCase() + word.slice(1);
  const title = html("h3", {}, `${kind} `, code(box.label));
  const parts = [title, facts([
    ["computes", computed(box, level)],
    ["check", box.raises],
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
    const around = aroundOf(selected.path);
    parts.push(button("Its slot", "Select the slot of the loop that it belongs to", () =>
      act.select({ path: around, port: box.slot })));
  }
  return parts;
}

// What an operation computes, or what makes an output.
function computed(box, level) {
  if (box.kind === "op") return expression(box, level);
  if (box.kind !== "output") return "";
  const [maker] = makersOf(box, level, 0);
  return maker ? expression(maker, level) : code(box.text);
}

// A text, and the whole expressions of what makes it if it leaves out something.
function withWhole(content, makers) {
  if (!content.includes(MARKS.more.sign) || !makers.length) return content ? [code(content)] : [];
  return makers.map(([maker, level, name]) =>
    html("div", {}, name ? html("span", { class: "faint" }, `${name} = `) : "",
      expression(maker, level)));
}

// What makes the outputs of the body that belong to a slot.
function madeInside(box, place, graphs) {
  const body = graphs.level(box.body);
  const outputs = (body?.boxes ?? []).filter((one) => one.kind === "output" && one.slot === place);
  return outputs.flatMap((one) => makersOf(one, body, 0).map((maker) =>
    [maker, body, outputs.length > 1 ? one.label : ""]));
}

function describePort(port, box, selected, level, graphs, act) {
  const parts = [
    html("h3", {}, "Slot ", code(port.name), ` of ${box.label}`),
    ...meaning(port.kind, act.words),
  ];
  if (port.taps.length) parts.push(timeLine(port));
  parts.push(facts([
    ["type", port.type],
    ["fed by", withWhole(port.fed_by,
      makersOf(box, level, selected.port).map((maker) => [maker, level, ""]))],
    [["read", "fixed"].includes(roleOf(port.kind)) ? "a step reads" : "a step makes",
      withWhole(port.inside, madeInside(box, selected.port, graphs))],
    ["read by", port.read_by.map((reader) => html("div", {}, code(reader)))],
    ["rows kept", [port.rows, port.note].filter(Boolean).join("; ")],
    ["memory", port.memory],
    ["values", port.values ? html("span", { class: "values" }, port.values) : ""],
  ]));
  const around = aroundOf(selected.path);
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
  const own = PORTS[kind]?.text;
  const summary = html("p", {}, html("strong", {}, kind), `: ${own ?? word?.summary ?? ""}`);
  if (own || !word) return [summary];
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

function link(box, around, act) {
  const name = box.kind === "op" ? box.text || box.label : box.label;
  return button(name, `Go to ${name}`,
    () => act.reveal(`${around}/${box.id}`), { class: "link" });
}

function readTexts(box, level, act, selected) {
  const around = aroundOf(selected.path);
  const ids = [...new Set(box.edges.map((edge) => edge.box))];
  return links(ids.map((id) => level.byId.get(id)), around, act);
}

function readers(box, level, act, selected) {
  const around = aroundOf(selected.path);
  const found = level.boxes.filter((other) => other.edges.some((edge) => edge.box === box.id));
  return links(found, around, act);
}

// Links to boxes; of many, the first ones, and a button for all.
function links(boxes, around, act) {
  const shown = boxes.slice(0, FEW_LINKS).map((box) => link(box, around, act));
  const rest = boxes.slice(FEW_LINKS);
  if (rest.length) {
    const more = button(`${MARKS.more.sign} ${rest.length} more`, "Show all", () =>
      more.replaceWith(...rest.map((box) => link(box, around, act))));
    shown.push(more);
  }
  return shown;
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
