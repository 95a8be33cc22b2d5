// Finds boxes and slots of a stage by their texts.

const MOST_FOUND = 60;

function search(graphs, stage, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!wanted.length) return [];
  const matches = (content) => {
    const lower = content.toLowerCase();
    return wanted.every((word) => lower.includes(word));
  };
  const found = [];
  const seen = new Set();
  const visit = (levelName, path, names) => {
    for (const box of graphs.level(levelName).boxes) {
      if (found.length >= MOST_FOUND) return;
      const here = `${path}/${box.id}`;
      const title = [...names, box.label].join(" / ");
      if (matches(`${box.label} ${box.text} ${box.place} ${box.type}`)) {
        found.push({ path: here, title, text: box.kind === "op" ? box.text : box.type });
      }
      box.ports.forEach((port, n) => {
        if (found.length < MOST_FOUND && matches(`${port.kind} ${port.name} ${port.inside}`)) {
          found.push({ path: here, port: n, title: `${title}: ${port.name}`, text: port.kind });
        }
      });
      // Equal bodies are searched once.
      if (box.body && !seen.has(box.body)) {
        seen.add(box.body);
        visit(box.body, here, [...names, box.label]);
      }
    }
  };
  visit(graphs.stages[stage].level, "", []);
  return found;
}
