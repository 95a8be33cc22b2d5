// The picture with its tools: the choice of a graph, search, the bar of passes, details.

class App {
  constructor(root, { drawn, words, remarks }, elk) {
    this.root = root;
    this.words = words;
    this.signs = remarks;
    this.elk = elk;
    this.all = drawn.map((one) => new Graphs(one));
    this.details = html("aside", { class: "details", "aria-live": "polite",
      "aria-label": "What is selected", hidden: true });
    this.stages = html("ol", { class: "stages", "aria-label": "Passes" });
    this.place = html("span", { class: "place" });
    this.remarks = html("div", { class: "remarks" });
    this.panes = html("div", { class: "panes" });
    this.message = html("p", { class: "message", role: "status" });
    this.canvases = ["Before", "Now"].map((label) =>
      new Canvas(label, elk, (selected) => this.select(selected), (path) => this.toggle(path)));
    this.panes.append(...this.canvases.map((canvas) => canvas.element));
    this.bar = html("div", { class: "pipeline" },
      button("◂", "The pass before (key [)", () => this.step(-1), { id: "back" }), this.stages,
      button("▸", "The next pass (key ])", () => this.step(1), { id: "forth" }), this.place);
    root.append(this.#tools(), this.bar, this.remarks, this.message,
      html("div", { class: "work" }, this.panes, this.details));
    document.addEventListener("keydown", (event) => this.#key(event));
    this.runs = new Runs((number, stage) => this.goToRun(number, stage));
    this.choose(0);
  }

  get graphs() {
    return this.all[this.number];
  }

  choose(number) {
    this.number = number;
    const { graphs } = this;
    const last = graphs.stages.length - 1;
    this.open = new Set();
    this.allPorts = new Set();
    this.selected = null;
    this.isBoth = graphs.sideBySide && last > 0;
    this.stage = graphs.sideBySide ? last : 0;
    this.#openLone();
    const sizes = [...graphs.levels.values()].flatMap((level) =>
      level.boxes.flatMap((box) => box.ports.map((port) => port.size)));
    this.largest = Math.max(1, ...sizes);
    this.#drawStages();
    return this.draw({ fit: true });
  }

  // A graph of few boxes has room for its only loop, open.
  #openLone() {
    const level = this.graphs.level(this.graphs.stages[this.stage].level);
    const loops = level.boxes.filter((box) => box.body);
    if (loops.length === 1 && this.graphs.level(loops[0].body).boxes.length <= 16) {
      this.open.add(`/${loops[0].id}`);
    }
  }

  async draw({ fit = false, show = null, toChange = false } = {}) {
    const { graphs, stage } = this;
    const now = graphs.stages[stage];
    const before = stage > 0 ? graphs.stages[stage - 1] : null;
    const view = {
      graphs, open: this.open, allPorts: this.allPorts, largest: this.largest,
      copies: graphs.copies(stage),
    };
    const isBoth = this.isBoth && before !== null;
    const [left, right] = this.canvases;
    left.element.hidden = !isBoth;
    this.#mark();
    this.root.setAttribute("aria-busy", "true");
    const caption = (one, what) => (isBoth ? `${what}: ${one.title}` : "");
    await Promise.all([
      right.draw(graphs, now.level, view, before?.level, caption(now, "after")),
      isBoth && left.draw(graphs, before.level,
        { ...view, isBefore: true, copies: graphs.copies(stage - 1) }, now.level,
        caption(before, "before")),
    ]);
    if (fit) this.canvases.forEach((canvas) => canvas.fit(true));
    this.select(this.selected);
    if (show) this.canvases.forEach((canvas) => canvas.show(show));
    else if (toChange) this.#showChange();
    this.root.removeAttribute("aria-busy");
  }

  select(selected) {
    if (selected?.isMore) {
      this.allPorts.add(selected.path);
      this.draw({ show: selected.path });
      return;
    }
    this.selected = selected;
    this.canvases.forEach((canvas) => canvas.select(selected));
    const act = {
      words: this.words,
      copies: this.graphs.copies(this.stage),
      toggle: (path) => this.toggle(path),
      select: (other) => this.select(other),
      reveal: (path, port) => this.reveal({ path, port }),
    };
    this.details.hidden = !selected;
    this.details.replaceChildren(
      button("✕", "Close (Escape)", () => this.select(null), { class: "close" }),
      ...describeSelection(selected, this.graphs, this.stage, act),
    );
  }

  // Opens or folds the body or the group at a path.
  async toggle(path) {
    const found = located(this.graphs, this.graphs.stages[this.stage].level, path);
    if (!found || (found.box && !found.box.body)) return;
    const around = path.split("/").slice(0, -1).join("/");
    const key = found.group ? `${around}#${found.group.id}` : path;
    if (this.open.has(key)) {
      // What is inside is folded as well.
      this.open = new Set([...this.open].filter((one) => one !== key && !one.startsWith(`${key}/`)));
    } else this.open.add(key);
    await this.draw({ show: path });
  }

  // Opens all around a box or slot, selects it and brings it into sight.
  async reveal({ path, port }) {
    let levelName = this.graphs.stages[this.stage].level;
    let around = "";
    for (const key of path.split("/").slice(1)) {
      const id = Number(key);
      const level = this.graphs.level(levelName);
      for (const group of groupsAround(level.shown, id)) this.open.add(`${around}#${group.id}`);
      if (`${around}/${key}` !== path) this.open.add(`${around}/${key}`);
      levelName = level.byId.get(id)?.body;
      around = `${around}/${key}`;
    }
    if (port !== undefined) this.allPorts.add(path);
    this.selected = { path, port };
    await this.draw({ show: path });
    this.canvases[1].find(path)?.focus({ preventScroll: true });
  }

  foldAll() {
    this.open.clear();
    this.allPorts.clear();
    return this.draw({ fit: true });
  }

  // Opens the loops that are in sight; what they have inside stays folded.
  async unfold() {
    for (const part of this.canvases[1].laid.parts) {
      if (part.box?.body) this.open.add(part.path);
    }
    await this.draw({ fit: true });
  }

  // Opens what holds a part that the pass changed.
  async showChanges() {
    const { graphs, stage } = this;
    if (!stage) return;
    let count = 0;
    const visit = (name, other, around) => {
      const level = graphs.level(name);
      for (const [id] of graphs.compare(name, other).status) {
        if (count++ > 200) return;
        for (const group of groupsAround(level.shown, id)) this.open.add(`${around}#${group.id}`);
        const box = level.byId.get(id);
        const same = graphs.level(other).byId.get(id);
        if (box.body && same?.body && box.body !== same.body) {
          this.open.add(`${around}/${id}`);
          visit(box.body, same.body, `${around}/${id}`);
        }
      }
    };
    const levels = [graphs.stages[stage].level, graphs.stages[stage - 1].level];
    visit(...levels, "");
    visit(...levels.reverse(), "");
    await this.draw({ fit: true, toChange: true });
  }

  // Selects the next part that the pass changed, or the one before.
  nextChange(by) {
    const [left, right] = this.canvases;
    const path = right.change(by) ?? (this.isBoth ? left.change(by) : null);
    if (path === null) return;
    this.select({ path });
    this.canvases.forEach((canvas) => canvas.show(path));
  }

  // Brings a part that the pass changed into sight, if none is.
  #showChange() {
    for (const canvas of this.canvases) {
      if (canvas.element.hidden || canvas.seesChange()) continue;
      const path = canvas.change(1);
      if (path !== null) canvas.show(path);
    }
  }

  step(by) {
    const stage = this.stage + by;
    if (stage < 0 || stage >= this.graphs.stages.length) return Promise.resolve();
    return this.goTo(stage);
  }

  goTo(stage) {
    this.stage = stage;
    return this.draw({ fit: !this.selected, toChange: true });
  }

  // Goes to what a row of the table of passes is about, and to the picture if that is below it.
  async goToRun(number, stage) {
    if (number !== this.number) {
      this.choice.value = String(number);
      await this.choose(number);
    }
    await this.goTo(stage);
    if (getComputedStyle(this.root.parentNode).flexDirection === "column") {
      this.root.scrollIntoView({ block: "nearest" });
    }
  }

  setBoth(isBoth) {
    this.isBoth = isBoth;
    if (isBoth && this.stage === 0 && this.graphs.stages.length > 1) this.stage = 1;
    return this.draw({ fit: true, toChange: true });
  }

  #drawStages() {
    const { graphs } = this;
    this.bar.hidden = graphs.stages.length < 2;
    const all = [];
    this.stages.replaceChildren(...graphs.stages.map((stage, n) => {
      const before = graphs.stages[n - 1];
      const made = before ? graphs.compare(stage.level, before.level).counts : null;
      const gone = before ? graphs.compare(before.level, stage.level).counts : null;
      const counts = before ? `+${made.only} −${gone.only} ~${made.changed}` : "";
      const spokenCounts = before
        ? `: ${made.only} new, ${gone.only} gone, ${made.changed} changed` : "";
      all.push(counts);
      return html("li", {}, html("button", {
        type: "button", onclick: () => this.goTo(n), "aria-label": `${stage.title}${spokenCounts}`,
        title: `${stage.title}${spokenCounts}${secondsText(stage)}`,
      }, html("span", {}, stage.title), html("small", {}, counts)));
    }));
    this.runs.count(this.number, all);
  }

  #mark() {
    [...this.stages.children].forEach((item, n) => {
      const chosen = item.firstChild;
      if (n === this.stage) chosen.setAttribute("aria-current", "step");
      else chosen.removeAttribute("aria-current");
    });
    const current = this.stages.children[this.stage];
    if (current && !this.bar.hidden) {
      this.stages.scrollLeft = current.offsetLeft - this.stages.clientWidth / 2;
    }
    this.runs.mark(this.number, this.stage);
    this.place.textContent = `${this.stage + 1} of ${this.stages.children.length}`;
    this.both.setAttribute("aria-pressed", String(this.isBoth));
    for (const tool of [this.both, this.changes, this.next]) {
      tool.disabled = this.graphs.stages.length < 2;
    }
    const { remarks } = this.graphs.stages[this.stage];
    this.remarks.hidden = remarks.length === 0;
    this.remarks.replaceChildren(html("ul", { class: "remarked" }, remarks.map(([kind, loop, content]) =>
      html("li", { class: `remark-${kind}` },
        html("span", { class: "kind", title: this.signs[kind].word }, this.signs[kind].sign), " ",
        html("code", {}, loop), ": ", ...withCode(content)))));
  }

  #tools() {
    const results = html("ul", { class: "results", hidden: true, "aria-label": "Found" });
    const input = html("input", {
      type: "search", id: "search", placeholder: "Search (key /)", "aria-label": "Search",
      autocomplete: "off", spellcheck: "false",
      oninput: () => this.#search(input, results),
      onkeydown: (event) => {
        if (event.key === "Enter") results.querySelector("button")?.click();
        if (event.key === "ArrowDown") results.querySelector("button")?.focus();
        if (event.key === "Escape") this.#clear(input, results);
      },
    });
    this.search = input;
    this.both = button("Side by side", "Show the graph before and after a pass (key b)",
      () => this.setBoth(!this.isBoth), { "aria-pressed": "false" });
    this.changes = button("Show changes", "Open what the pass changed (key c)",
      () => this.showChanges());
    this.next = button("Next change", "Go to the next part that the pass changed (key n, back: p)",
      () => this.nextChange(1));
    const titles = this.all.map((graphs, n) => html("option", { value: n }, graphs.title));
    this.choice = html("select", { "aria-label": "Graph", hidden: this.all.length < 2,
      onchange: (event) => this.choose(Number(event.target.value)) }, titles);
    return html("div", { class: "tools", role: "toolbar", "aria-label": "Picture" },
      this.choice, html("span", { class: "searching" }, input, results),
      button("Fold all", "Fold all (key f)", () => this.foldAll()),
      button("Unfold", "Open the loops in sight (key u)", () => this.unfold()),
      this.both, this.changes, this.next,
      button("−", "Smaller (key -)", () => this.#each((canvas) => canvas.zoom(1 / ZOOM))),
      button("+", "Larger (key +)", () => this.#each((canvas) => canvas.zoom(ZOOM))),
      button("Fit", "Show all of it (key 0)", () => this.#each((canvas) => canvas.fit())),
      button("⇔", "With or without the text beside it (key w)", () => this.#widen()),
      button("Key", "What the signs mean (key ?)", () => this.#showKey()),
      button("◐", "Light or dark", () => this.#changeTheme()));
  }

  #each(act) {
    this.canvases.forEach(act);
  }

  #search(input, results) {
    const found = search(this.graphs, this.stage, input.value);
    results.hidden = !input.value.trim();
    const items = found.map((one) => html("li", {}, html("button", {
      type: "button",
      onclick: () => {
        this.#clear(input, results);
        this.reveal(one);
      },
    }, html("span", {}, one.title), " ", html("small", {}, cut(one.text, 60)))));
    const none = () => html("li", {}, this.#elsewhere(input.value));
    results.replaceChildren(...(items.length ? items : [none()]));
  }

  // Says in which other stages something is, which is not in this one.
  #elsewhere(words) {
    const titles = this.graphs.stages.filter((_, n) => search(this.graphs, n, words).length)
      .map((stage) => stage.title);
    if (!titles.length) return "nothing found";
    return `not in this stage; in ${cut([...new Set(titles)].join(", "), 120)}`;
  }

  #clear(input, results) {
    input.value = "";
    results.hidden = true;
  }

  #widen() {
    document.body.classList.toggle("is-wide");
    this.#each((canvas) => canvas.fit(true));
  }

  #showKey() {
    this.selected = null;
    this.details.hidden = false;
    this.details.replaceChildren(
      button("✕", "Close (Escape)", () => this.select(null), { class: "close" }), ...signsAndColours());
  }

  #changeTheme() {
    const root = document.documentElement;
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  }

  #key(event) {
    if (event.target.closest("input, select, textarea")) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {
      "/": () => this.search.focus(),
      "[": () => this.step(-1),
      "]": () => this.step(1),
      b: () => this.setBoth(!this.isBoth),
      c: () => this.showChanges(),
      f: () => this.foldAll(),
      u: () => this.unfold(),
      n: () => this.nextChange(1),
      p: () => this.nextChange(-1),
      w: () => this.#widen(),
      "?": () => this.#showKey(),
      Escape: () => this.select(null),
    };
    if (!(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  }
}

// How long a run of a pass took.
const secondsText = ({ seconds }) =>
  seconds === undefined ? "" : `; ${seconds.toPrecision(2)} s`;

function groupsAround(members, id) {
  for (const member of members) {
    if (typeof member === "number") continue;
    if (leaves(member).includes(id)) return [member, ...groupsAround(member.members, id)];
  }
  return [];
}

// Everything that is folded is printed, too.
window.addEventListener("beforeprint", () => {
  document.querySelectorAll("details.section").forEach((section) => (section.open = true));
});

(async () => {
  const root = document.getElementById("picture");
  if (!root) return;
  try {
    const [data, elk] = await Promise.all([unpacked("graphs").then(JSON.parse), startElk()]);
    window.scanopt = new App(root, data, elk);
  } catch (error) {
    root.append(html("p", { class: "message" }, `The picture cannot be drawn: ${error.message}`));
    throw error;
  }
})();
