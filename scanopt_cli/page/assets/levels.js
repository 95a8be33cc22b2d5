// The graphs as Python wrote them, with what fields are when they are left out, and comparisons.

const DEFAULTS = {
  text: "", type: "", edges: [], place: "", facts: [], ports: [], body: "", digest: "",
  slot: -1, whole: "", raises: "",
};
const PORT = {
  taps: [], out_taps: [], type: "", fed_by: "", inside: "", read_by: [], rows: "", memory: "",
  note: "", size: 0, values: "",
};

class Graphs {
  constructor(drawn) {
    this.title = drawn.title;
    this.sideBySide = drawn.sideBySide;
    this.stages = drawn.picture.stages.map((stage) => ({ remarks: [], ...stage }));
    this.levels = new Map();
    for (const [name, level] of Object.entries(drawn.picture.levels)) {
      const boxes = level.boxes.map((box) => ({
        ...DEFAULTS,
        ...box,
        edges: (box.edges ?? []).map((edge) => ({ from_port: 0, ...edge })),
        ports: (box.ports ?? []).map((port) => ({ ...PORT, ...port })),
      }));
      this.levels.set(name, {
        name, boxes, byId: new Map(boxes.map((box) => [box.id, box])), shown: level.shown,
      });
    }
    this.compared = new Map();
    this.counted = new Map();
  }

  level(name) {
    return this.levels.get(name);
  }

  // What differs between a level and another one, which may be missing: the status of each box.
  compare(name, other) {
    const key = `${name}|${other}`;
    if (!this.compared.has(key)) this.compared.set(key, this.#compared(name, other));
    return this.compared.get(key);
  }

  #compared(name, other) {
    const found = { status: new Map(), counts: { only: 0, changed: 0 } };
    if (name === other || other === undefined) return found;
    const level = this.level(name);
    const others = this.level(other);
    for (const box of level.boxes) {
      const same = others.byId.get(box.id);
      const status = same === undefined ? "only" : this.#differs(box, same, level, others);
      if (!status) continue;
      found.status.set(box.id, status);
      found.counts[status] += 1;
      if (status === "changed" && box.body && same.body) {
        const inside = this.compare(box.body, same.body).counts;
        found.counts.only += inside.only;
        found.counts.changed += inside.changed;
      }
    }
    return found;
  }

  #differs(box, other, level, others) {
    const text = (one, around) =>
      JSON.stringify([
        one.kind, one.digest, one.kind === "input" ? one.label : "",
        one.ports.map((port) => [port.kind, port.taps, port.rows]),
        one.edges
          .map((edge) => [portName(one, edge.port), edge.box,
            portName(around.byId.get(edge.box), edge.from_port)])
          .sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)),
      ]);
    return text(box, level) === text(other, others) ? null : "changed";
  }

  // How many boxes of a stage have each body; what is in equal bodies counts once.
  copies(stage) {
    const root = this.stages[stage].level;
    if (!this.counted.has(root)) {
      const counts = new Map();
      const waiting = [root];
      while (waiting.length) {
        for (const { body } of this.level(waiting.pop()).boxes) {
          if (!body) continue;
          if (!counts.has(body)) waiting.push(body);
          counts.set(body, (counts.get(body) ?? 0) + 1);
        }
      }
      this.counted.set(root, counts);
    }
    return this.counted.get(root);
  }
}

// Ports are compared by name, since a pass that drops a slot moves those behind it.
function portName(box, place) {
  return box && box.ports.length ? (box.ports[place]?.name ?? String(place)) : place;
}

function leaves(member) {
  return typeof member === "number" ? [member] : member.members.flatMap(leaves);
}

const tapText = (tap) => (tap === 0 ? "t" : `t${tap > 0 ? "+" : ""}${tap}`);

// `h[t-1]`, and of a mit_mot what it reads and what it writes.
function tapsText(port) {
  if (!port.taps.length) return "";
  const read = port.taps.map(tapText).join(", ");
  return port.out_taps.length ? `${read} → ${port.out_taps.map(tapText).join(", ")}` : read;
}
