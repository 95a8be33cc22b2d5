// Finds boxes and slots of a stage by their texts.

const MOST_FOUND = 60;

// Those of which the name has all words come first, then those of which another text has them.
function search(graphs, stage, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!wanted.length) return [];
  const matches = (content) => {
    const lower = content.toLowerCase();
    return wanted.every((word) => lower.includes(word));
  };
  const named = [];
  const others = [];
  const note = (one, name, more) => {
    if (matches(name)) named.push(one);
    else if (matches(`${name} ${more}`)) others.push(one);
  };
  const seen = new Set();
  const visit = (levelName, path, names) => {
    for (const box of graphs.level(levelName).boxes) {
      const here = `${path}/${box.id}`;
      const title = [...names, box.label].join(" / ");
      const content = box.kind === "op" ? box.text : box.type;
      const more = [box.text, box.place, box.type, box.raises].join(" ");
      note({ path: here, title, text: content }, box.label, more);
      box.ports.forEach((port, n) => {
        const slot = { path: here, port: n, title: `${title}: ${port.name}`, text: port.kind };
        note(slot, port.name, `${port.kind} ${port.inside}`);
      });
      // Equal bodies are searched once.
      if (box.body && !seen.has(box.body)) {
        seen.add(box.body);
        visit(box.body, here, [...names, box.label]);
      }
    }
  };
  visit(graphs.stages[stage].level, "", []);
  return [...named, ...others].slice(0, MOST_FOUND);
}

// The same in the stage before as well: what is in both is told once, and where.
function searchBoth(graphs, stage, words) {
  const found = new Map();
  for (const isBefore of [false, true]) {
    for (const one of search(graphs, isBefore ? stage - 1 : stage, words)) {
      const key = `${one.path}:${one.port ?? ""}`;
      const known = found.get(key);
      if (known) known.where = "before and after";
      else found.set(key, { ...one, isBefore, where: isBefore ? "before" : "after" });
    }
  }
  return [...found.values()].slice(0, MOST_FOUND);
}
