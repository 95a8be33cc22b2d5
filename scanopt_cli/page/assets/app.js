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
      new Canvas(label, elk, (selected, canvas) => this.select(this.#ofCanvas(selected, canvas)),
        (path, canvas) => this.toggle(path, canvas === this.canvases[0])));
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
    this.message.textContent = "";
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
    this.canvases[0].select(this.#inStage(selected, this.stage - 1));
    this.canvases[1].select(this.#inStage(selected, this.stage));
    const stage = this.#stageOf(selected);
    const isBefore = stage !== this.stage;
    const act = {
      isBefore,
      words: this.words,
      copies: this.graphs.copies(stage),
      toggle: (path) => this.toggle(path, isBefore),
      select: (other) => this.select({ ...other, isBefore }),
      reveal: (path, port) => this.reveal({ path, port, isBefore }),
    };
    this.details.hidden = !selected;
    this.details.replaceChildren(
      button("✕", "Close (Escape)", () => this.select(null), { class: "close" }),
      ...describeSelection(selected, this.graphs, stage, act),
    );
  }

  #ofCanvas(selected, canvas) {
    return selected && { ...selected, isBefore: this.isBoth && canvas === this.canvases[0] };
  }

  #located(path, stage) {
    return located(this.graphs, this.graphs.stages[stage].level, path);
  }

  // Of two stages side by side, the one that has what is selected: the later one, unless the
  // earlier one is meant, or it is in that one alone.
  #stageOf(selected) {
    if (!selected || !this.#isPair()) return this.stage;
    const order = selected.isBefore ? [this.stage - 1, this.stage] : [this.stage, this.stage - 1];
    return order.find((stage) => this.#located(selected.path, stage)) ?? this.stage;
  }

  // What is selected, in a stage: a slot has another place there if a pass dropped one before it.
  #inStage(selected, stage) {
    if (selected?.port === undefined || stage < 0) return selected;
    const [own, other] = [this.#stageOf(selected), stage].map((one) =>
      this.#located(selected.path, one)?.box);
    if (!own || !other || own === other) return selected;
    const place = other.ports.findIndex(({ name }) => name === own.ports[selected.port]?.name);
    return { ...selected, port: place < 0 ? undefined : place };
  }

  #isPair() {
    return this.isBoth && this.stage > 0;
  }

  // Opens or folds the body or the group at a path.
  async toggle(path, isBefore = false) {
    const found = this.#located(path, this.#stageOf({ path, isBefore }));
    if (!found || (found.box && !found.box.body)) return;
    const key = found.group ? groupKey({ path, group: found.group }) : path;
    if (this.open.has(key)) {
      // What is inside is folded as well.
      this.open = new Set([...this.open].filter((one) => one !== key && !one.startsWith(`${key}/`)));
    } else this.open.add(key);
    await this.draw({ show: path });
  }

  // Opens all around a box or slot, selects it and brings it into sight.
  async reveal({ path, port, isBefore = false }) {
    let levelName = this.graphs.stages[this.#stageOf({ path, isBefore })].level;
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
    this.selected = { path, port, isBefore };
    await this.draw({ show: path });
    const canvas = this.canvases[isBefore && this.#isPair() ? 0 : 1];
    canvas.find(path)?.focus({ preventScroll: true });
  }

  foldAll() {
    this.open.clear();
    this.allPorts.clear();
    return this.draw({ fit: true });
  }

  // Opens one level more of what is in sight.
  async unfold() {
    unfoldOnce(this.canvases[1].laid, this.open);
    await this.draw({ fit: true });
  }

  // Opens all below the loop that is selected, or in the whole graph.
  async unfoldBelow() {
    const under = this.#located(this.selected?.path, this.stage)?.box?.body
      ? this.selected.path : null;
    const left = unfoldBelow(this.graphs, this.canvases[1].laid, this.open, under);
    await this.draw({ fit: !under, show: under });
    if (left) {
      this.message.textContent = `More than ${MOST_UNFOLDED} boxes would be shown: `
        + `${left} ${left === 1 ? "loop or group stays" : "loops or groups stay"} folded. `
        + "Select one, and unfold below it.";
    }
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
      const { only, changed } = before ? graphs.compare(stage.level, before.level).counts : {};
      const gone = before && graphs.compare(before.level, stage.level).counts.only;
      const counts = before ? countsText({ only, gone, changed }) : "";
      const spokenCounts = before ? `: ${only} new, ${gone} gone, ${changed} changed` : "";
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
    this.search = new SearchBox({
      find: (words) => (this.#isPair() ? searchBoth : search)(this.graphs, this.stage, words),
      elsewhere: (words) => this.#elsewhere(words),
      go: (one) => this.reveal(one),
    });
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
      this.choice, this.search.element,
      button("Fold all", "Fold all (key f)", () => this.foldAll()),
      button("Unfold", "Open the loops in sight, one level more (key u)", () => this.unfold()),
      button("Unfold all", "Open all below what is selected, or all there is (key U)",
        () => this.unfoldBelow()),
      this.both, this.changes, this.next,
      button("−", "Smaller (key -)", () => this.#each((canvas) => canvas.zoom(1 / ZOOM))),
      button("+", "Larger (key +)", () => this.#each((canvas) => canvas.zoom(ZOOM))),
      button("Fit", "Show all of it (key 0)", () => this.#each((canvas) => canvas.fit())),
      button("⇔", "With or without the text beside it (key w)", () => this.#widen()),
      button("Legend", "What the signs mean (key ?)", () => this.#showLegend()),
      button("◐", "Light or dark", () => this.#changeTheme()));
  }

  #each(act) {
    this.canvases.forEach(act);
  }

  // Says in which other stages something is, which is not in this one.
  #elsewhere(words) {
    const titles = this.graphs.stages.filter((_, n) => search(this.graphs, n, words).length)
      .map((stage) => stage.title);
    if (!titles.length) return "nothing found";
    return `not ${this.#isPair() ? "before or after" : "in this stage"}; in ${cut([...new Set(titles)].join(", "), 120)}`;
  }

  #widen() {
    document.body.classList.toggle("is-wide");
    this.#each((canvas) => canvas.fit(true));
  }

  #showLegend() {
    this.select(null);
    this.details.hidden = false;
    const keys = [...Object.entries(this.#acts()), ...Object.entries(MOVES)]
      .map(([key, { text }]) => [html("kbd", {}, key), text]);
    this.details.replaceChildren(
      button("✕", "Close (Escape)", () => this.select(null), { class: "close" }),
      ...legend(this.all, this.words, this.signs, keys));
    this.details.scrollTop = 0;
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
    const acts = this.#acts();
    if (!Object.hasOwn(acts, event.key)) return;
    event.preventDefault();
    acts[event.key].act();
  }

  // What keys do; those of the picture itself are in `MOVES`.
  #acts() {
    return {
      "/": { text: "search", act: () => this.search.focus() },
      "[": { text: "the pass before", act: () => this.step(-1) },
      "]": { text: "the next pass", act: () => this.step(1) },
      b: { text: "before and after, side by side", act: () => this.setBoth(!this.isBoth) },
      c: { text: "open what the pass changed", act: () => this.showChanges() },
      n: { text: "the next change", act: () => this.nextChange(1) },
      p: { text: "the change before", act: () => this.nextChange(-1) },
      u: { text: "unfold one level", act: () => this.unfold() },
      U: { text: "unfold all below what is selected", act: () => this.unfoldBelow() },
      f: { text: "fold all", act: () => this.foldAll() },
      w: { text: "with or without the text", act: () => this.#widen() },
      "?": { text: "this legend", act: () => this.#showLegend() },
      Escape: { text: "close the details", act: () => this.select(null) },
    };
  }
}

// How long a run of a pass took.
const secondsText = ({ seconds }) =>
  seconds === undefined ? "" : `; ${seconds.toPrecision(2)} s`;

// Everything that is folded is printed, too.
window.addEventListener("beforeprint", () => {
  document.querySelectorAll("#text details").forEach((folded) => (folded.open = true));
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
