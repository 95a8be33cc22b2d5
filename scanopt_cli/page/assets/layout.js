// Where boxes and edges go. ELK lays out one level at a time, in a worker; what is inside of a box
// that is open is laid out first, and is then as large as it came out.

const LAYOUT = {
  "elk.algorithm": "layered",
  "elk.direction": "RIGHT",
  "elk.edgeRouting": "ORTHOGONAL",
  "elk.layered.spacing.nodeNodeBetweenLayers": "34",
  "elk.spacing.nodeNode": "12",
  "elk.layered.spacing.edgeNodeBetweenLayers": "12",
  "elk.spacing.edgeEdge": "7",
  "elk.layered.nodePlacement.strategy": "BRANDES_KOEPF",
  // Boxes of a column are in the order that Python gave them, which stays from stage to stage; what
  // would switch neighbours for fewer crossings is off.
  "elk.layered.considerModelOrder.strategy": "NODES_AND_EDGES",
  "elk.layered.crossingMinimization.forceNodeModelOrder": "true",
  "elk.layered.crossingMinimization.greedySwitch.type": "OFF",
  // Parts that are not connected would be placed by their size.
  "elk.separateConnectedComponents": "false",
  "elk.layered.mergeEdges": "true",
  "elk.padding": "[top=8,left=8,bottom=8,right=8]",
};
// Above so many boxes, faster ways of placing them.
const MANY = 300;
const IN_A_HURRY = {
  "elk.layered.nodePlacement.strategy": "SIMPLE",
  "elk.edgeRouting": "POLYLINE",
  "elk.layered.thoroughness": "1",
};

async function startElk() {
  const source = new Blob([await unpacked("elk")], { type: "text/javascript" });
  const worker = new Worker(URL.createObjectURL(source));
  const waiting = new Map();
  let count = 0;
  worker.onmessage = ({ data }) => {
    const { resolve, reject } = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error) reject(new Error(data.error.message ?? String(data.error)));
    else resolve(data.data);
  };
  const ask = (message) =>
    new Promise((resolve, reject) => {
      const id = count++;
      waiting.set(id, { resolve, reject });
      worker.postMessage({ id, ...message });
    });
  await ask({ cmd: "register", algorithms: ["layered"] });
  return (graph) => ask({ cmd: "layout", graph, layoutOptions: {}, options: {} });
}

// What is shown of a level: boxes, and groups that are not open.
function visible(level, path, view) {
  const shown = [];
  const add = (member, around) => {
    if (typeof member === "number") {
      shown.push({ key: member, box: level.byId.get(member), groups: around });
      return;
    }
    if (!view.open.has(`${path}#${member.id}`)) {
      shown.push({ key: member.id, group: member, groups: around });
      return;
    }
    for (const inside of member.members) add(inside, [...around, member]);
  };
  for (const member of level.shown) add(member, []);
  return shown;
}

// Lays out a level; `path` has the boxes around it, and `view` says what is open.
async function layOut(elk, graphs, levelName, path, view, other) {
  const level = graphs.level(levelName);
  const compared = graphs.compare(levelName, other);
  const parts = visible(level, path, view);
  const partOf = new Map();
  await Promise.all(parts.map(async (part) => {
    for (const id of part.box ? [part.box.id] : leaves(part.group)) partOf.set(id, part);
    part.path = `${path}/${part.key}`;
    part.level = levelName;
    if (part.box) part.status = compared.status.get(part.box.id);
    else part.inside = counted(leaves(part.group), compared.status);
    if (part.box?.body && view.open.has(part.path)) {
      const counterpart = graphs.level(other)?.byId.get(part.box.id)?.body;
      const inner = other === undefined ? undefined : counterpart || undefined;
      part.body = await layOut(elk, graphs, part.box.body, part.path, view, inner);
    }
    measure(part, view);
  }));
  const laid = await elk(elkGraph(parts, partOf));
  for (const child of laid.children) {
    Object.assign(parts[Number(child.id)], { x: child.x, y: child.y });
  }
  const edges = laid.edges.map((edge) => ({
    from: parts[edge.from], to: parts[edge.to], points: points(edge), ends: edge.ends,
  }));
  return { parts, edges, width: laid.width, height: laid.height, path };
}

function counted(ids, status) {
  const counts = { only: 0, changed: 0 };
  for (const id of ids) if (status.has(id)) counts[status.get(id)] += 1;
  return counts;
}

function elkGraph(parts, partOf) {
  const children = parts.map((part, n) => ({
    id: String(n),
    width: part.width,
    height: part.height,
    layoutOptions: {
      ...(part.rows ? { "elk.portConstraints": "FIXED_POS" } : {}),
      ...(part.box?.kind === "input"
        ? { "elk.layered.layering.layerConstraint": "FIRST" }
        : part.box?.kind === "output"
          ? { "elk.layered.layering.layerConstraint": "LAST" }
          : {}),
    },
    ports: (part.rows ?? []).flatMap((row, r) =>
      ["WEST", "EAST"].map((side) => ({
        id: `${n}${side}${r}`,
        x: side === "WEST" ? 0 : part.width,
        y: row.y + ROW / 2,
        width: 0,
        height: 0,
        layoutOptions: { "elk.port.side": side },
      })),
    ),
  }));
  const numbers = new Map(parts.map((part, n) => [part, n]));
  const edges = new Map();
  for (const part of parts) {
    const boxes = part.box ? [part.box] : part.boxes;
    for (const box of boxes) {
      for (const edge of box.edges) {
        const from = partOf.get(edge.box);
        if (from === undefined || from === part) continue;
        const a = numbers.get(from);
        const b = numbers.get(part);
        const source = from.rows ? `${a}EAST${from.rowOf(edge.from_port)}` : String(a);
        const target = part.rows ? `${b}WEST${part.rowOf(edge.port)}` : String(b);
        const id = `${source}>${target}`;
        if (!edges.has(id)) {
          edges.set(id, { id, sources: [source], targets: [target], from: a, to: b, ends: [] });
        }
        edges.get(id).ends.push([edge.box, edge.from_port, box.id, edge.port]);
      }
    }
  }
  const layoutOptions = parts.length > MANY ? { ...LAYOUT, ...IN_A_HURRY } : LAYOUT;
  return { id: "root", layoutOptions, children, edges: [...edges.values()] };
}

function points(edge) {
  const [section] = edge.sections ?? [];
  if (!section) return [];
  return [section.startPoint, ...(section.bendPoints ?? []), section.endPoint];
}
