// Finds boxes and slots of a stage by their texts, and shows what was found.

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

// `find` returns what has some words, `elsewhere` a text if that is nothing; `go` goes to one.
class SearchBox {
  constructor({ find, elsewhere, go }) {
    Object.assign(this, { find, elsewhere, go });
    this.results = html("ul", { class: "results", hidden: true, "aria-label": "Found" });
    this.input = html("input", {
      type: "search", id: "search", placeholder: "Search (key /)", "aria-label": "Search",
      autocomplete: "off", spellcheck: "false",
      oninput: () => this.#show(),
      onkeydown: ({ key }) => {
        if (key === "Enter") this.results.querySelector("button")?.click();
        if (key === "ArrowDown") this.results.querySelector("button")?.focus();
        if (key === "Escape") this.#clear();
      },
    });
    this.element = html("span", { class: "searching" }, this.input, this.results);
  }

  focus() {
    this.input.focus();
  }

  #show() {
    const words = this.input.value;
    this.results.hidden = !words.trim();
    const items = this.find(words).map((one) => html("li", {}, html("button", {
      type: "button",
      onclick: () => {
        this.#clear();
        this.go(one);
      },
    }, html("span", {}, one.title), " ", html("small", {}, cut(one.text, 60)),
    one.where ? html("small", { class: "where" }, ` ${one.where}`) : null)));
    this.results.replaceChildren(
      ...(items.length ? items : [html("li", {}, this.elsewhere(words))]));
  }

  #clear() {
    this.input.value = "";
    this.results.hidden = true;
  }
}
