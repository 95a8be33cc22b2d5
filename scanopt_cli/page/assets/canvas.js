// One pane: a stage as a drawing that can be moved, enlarged, and walked through by the keyboard.

const ZOOM = 1.25;
const LEAST = 0.05;
const MOST = 4;
const READABLE = 0.7;
// The keys of the picture, for the legend.
const MOVES = {
  "← → ↑ ↓": { text: "go from box to box; with Shift, move the picture" },
  Enter: { text: "open or fold what is selected" },
  "+ −": { text: "larger, smaller" },
  0: { text: "show all of it" },
};

class Canvas {
  constructor(label, elk, onselect, ontoggle) {
    this.elk = elk;
    this.onselect = onselect;
    this.ontoggle = ontoggle;
    this.scale = 1;
    this.shift = { x: 0, y: 0 };
    this.content = svg("g");
    this.surface = svg("svg", { class: "surface", role: "group", tabindex: "0", "aria-label":
      `${label}: Tab or the arrow keys go from box to box, Enter opens one` }, this.content);
    this.caption = html("p", { class: "caption" });
    this.element = html("div", { class: "pane" }, this.caption, this.surface);
    this.drawings = 0;
    this.#listen();
  }

  // Draws a stage; `view` says what is open, `other` is the level it is compared with.
  async draw(graphs, levelName, view, other, caption) {
    const drawing = ++this.drawings;
    this.surface.setAttribute("aria-busy", "true");
    const laid = await layOut(this.elk, graphs, levelName, "", view, other);
    if (drawing !== this.drawings) return; // a later one was asked for meanwhile
    this.laid = laid;
    const hadFocus = this.surface.contains(document.activeElement);
    this.content.replaceChildren();
    drawLevel(this.content, laid, view);
    this.caption.textContent = caption;
    this.caption.hidden = !caption;
    this.surface.removeAttribute("aria-busy");
    this.#transform();
    const box = this.select(this.selected);
    // What had the focus is gone: the keyboard goes on from the same place.
    if (hadFocus) (box ?? this.surface).focus({ preventScroll: true });
  }

  // Shows all of the drawing, or with `readable`, what of it fits in letters that can be read, from
  // the first box on.
  fit(readable = false) {
    if (!this.laid) return;
    const { clientWidth: width, clientHeight: height } = this.surface;
    if (!width || !height) return;
    const whole = Math.min((width - 16) / this.laid.width, (height - 16) / this.laid.height, 1.2);
    this.scale = readable ? Math.max(whole, READABLE) : Math.max(whole, LEAST);
    const [first] = this.laid.parts;
    const place = (room, size, start, extent) => {
      if (size * this.scale <= room) return (room - size * this.scale) / 2;
      const centred = room / 2 - (start + extent / 2) * this.scale;
      return Math.min(4, Math.max(room - size * this.scale - 4, centred));
    };
    this.shift = {
      x: this.laid.width * this.scale <= width ? (width - this.laid.width * this.scale) / 2 : 4,
      y: first ? place(height, this.laid.height, first.y, first.height) : 4,
    };
    this.#transform();
  }

  // Goes to the next box that a pass changed, or to the one before; returns its path.
  change(by) {
    const marked = [...this.content.querySelectorAll(".is-only, .is-changed, .is-gone")];
    if (!marked.length) return null;
    const here = marked.findIndex((box) => box.dataset.path === this.selected?.path);
    const next = here < 0 ? (by > 0 ? 0 : marked.length - 1) : here + by;
    return marked[(next + marked.length) % marked.length].dataset.path;
  }

  // Whether a box that a pass changed is in sight, if there is one.
  seesChange() {
    const marked = [...this.content.querySelectorAll(".is-only, .is-changed, .is-gone")];
    return !marked.length || marked.some((box) => this.#isInSight(box));
  }

  zoom(factor, at) {
    const scale = Math.min(MOST, Math.max(LEAST, this.scale * factor));
    const { clientWidth, clientHeight } = this.surface;
    const centre = at ?? { x: clientWidth / 2, y: clientHeight / 2 };
    const ratio = scale / this.scale;
    this.shift.x = centre.x - (centre.x - this.shift.x) * ratio;
    this.shift.y = centre.y - (centre.y - this.shift.y) * ratio;
    this.scale = scale;
    this.#transform();
  }

  find(path) {
    return this.content.querySelector(`[data-path="${CSS.escape(path)}"]`);
  }

  // Marks what is selected, and the edges from and to it.
  select(selected) {
    this.selected = selected;
    for (const marked of this.content.querySelectorAll(".selected, .touched")) {
      marked.classList.remove("selected", "touched");
    }
    if (!selected) return null;
    const box = this.find(selected.path);
    if (!box) return null;
    const id = Number(selected.path.split("/").at(-1));
    const port = selected.port === undefined
      ? null : box.querySelector(`:scope > [data-port="${selected.port}"]`);
    (port ?? box).classList.add("selected");
    const around = box.parentNode;
    for (const edge of around.querySelectorAll(":scope > .edge")) {
      const ends = edge.dataset.ends.split(" ").map((end) => end.split(":").map(Number));
      const touches = Number.isNaN(id)
        ? edge.dataset.from === selected.path || edge.dataset.to === selected.path
        : ends.some(([from, out, to, into]) =>
            (from === id && (selected.port === undefined || out === selected.port)) ||
            (to === id && (selected.port === undefined || into === selected.port)));
      if (touches) edge.classList.add("touched");
    }
    if (selected.port !== undefined) {
      for (const inner of this.#innerBoxes(selected)) inner.classList.add("touched");
    }
    return box;
  }

  // Moves the drawing so that a box is in sight.
  show(path) {
    const box = this.find(path);
    if (!box) return;
    if (this.#isInSight(box)) return;
    const seen = this.#room();
    const frame = (box.querySelector(".frame") ?? box).getBoundingClientRect();
    this.shift.x += seen.left + seen.width / 2 - (frame.left + Math.min(frame.width, 300) / 2);
    this.shift.y += seen.top + seen.height / 2 - (frame.top + Math.min(frame.height, 200) / 2);
    this.#transform();
  }

  // What is seen of the drawing: the details lie over its right side.
  #room() {
    const { left, top, right, bottom } = this.surface.getBoundingClientRect();
    const cover = document.querySelector(".details:not([hidden])")?.getBoundingClientRect();
    const free = cover && cover.width < (right - left) / 2 && cover.top < bottom && cover.left > left
      ? cover.left : right;
    return { left, top, right: free, bottom, width: free - left, height: bottom - top };
  }

  #isInSight(box) {
    const seen = this.#room();
    const frame = (box.querySelector(".frame") ?? box).getBoundingClientRect();
    return frame.left >= seen.left && Math.min(frame.right, frame.left + 300) <= seen.right &&
      frame.top >= seen.top && Math.min(frame.bottom, frame.top + 200) <= seen.bottom;
  }

  // The inputs and outputs of a body that belong to a slot.
  *#innerBoxes({ path, port }) {
    const find = (laid) => {
      for (const part of laid.parts) {
        if (part.path === path) return part;
        if (part.body && path.startsWith(`${part.path}/`)) return find(part.body);
      }
      return null;
    };
    for (const inner of find(this.laid)?.body?.parts ?? []) {
      if (inner.box?.slot === port) yield this.find(inner.path);
    }
  }

  #transform() {
    const { x, y } = this.shift;
    this.content.setAttribute("transform", `translate(${x} ${y}) scale(${this.scale})`);
  }

  #selectedAt(target) {
    const box = target.closest("[data-path]");
    if (!box) return null;
    const port = target.closest("[data-port]");
    const inThisBox = port !== null && port.closest("[data-path]") === box;
    return {
      path: box.dataset.path,
      port: inThisBox ? Number(port.dataset.port) : undefined,
      isMore: target.closest("[data-more]") !== null,
      isHead: target.closest(".head, .fold, .title") !== null,
    };
  }

  #listen() {
    const { surface } = this;
    let drag = null;
    surface.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, moved: false };
    });
    surface.addEventListener("pointermove", (event) => {
      if (!drag || !(event.buttons & 1)) return;
      const by = { x: event.clientX - drag.x, y: event.clientY - drag.y };
      if (!drag.moved && Math.hypot(by.x, by.y) < 4) return;
      if (!drag.moved) surface.setPointerCapture(event.pointerId);
      this.shift.x += by.x;
      this.shift.y += by.y;
      drag = { x: event.clientX, y: event.clientY, moved: true };
      this.#transform();
    });
    surface.addEventListener("click", (event) => {
      const moved = drag?.moved;
      drag = null;
      if (moved) return;
      const selected = this.#selectedAt(event.target);
      this.onselect(selected, this);
      if (selected?.isHead || (selected && this.find(selected.path).classList.contains("group"))) {
        this.ontoggle(selected.path, this);
      }
    });
    surface.addEventListener("wheel", (event) => {
      event.preventDefault();
      const seen = surface.getBoundingClientRect();
      const at = { x: event.clientX - seen.left, y: event.clientY - seen.top };
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), at);
    }, { passive: false });
    surface.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves && event.shiftKey) {
      this.shift.x -= 80 * moves[event.key][0];
      this.shift.y -= 80 * moves[event.key][1];
      this.#transform();
    } else if (event.key in moves) this.#go(moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") {
      if (this.selected) this.ontoggle(this.selected.path, this);
    } else if (event.key === "+" || event.key === "=") this.zoom(ZOOM);
    else if (event.key === "-") this.zoom(1 / ZOOM);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  // Selects the nearest box in a direction; the first one if none is selected.
  #go([dx, dy]) {
    const boxes = [...this.content.querySelectorAll("[data-path]")];
    const centre = (box) => {
      const frame = (box.querySelector(":scope > .frame") ?? box).getBoundingClientRect();
      return { x: frame.left + frame.width / 2, y: frame.top + frame.height / 2 };
    };
    const here = this.selected && this.find(this.selected.path);
    let best = here ? null : boxes[0];
    let least = Infinity;
    for (const box of here ? boxes : []) {
      if (box === here || box.contains(here)) continue;
      const from = centre(here);
      const to = centre(box);
      const along = (to.x - from.x) * dx + (to.y - from.y) * dy;
      const aside = Math.abs((to.x - from.x) * dy) + Math.abs((to.y - from.y) * dx);
      if (along > 1 && along + 2 * aside < least) {
        least = along + 2 * aside;
        best = box;
      }
    }
    if (best) {
      this.onselect({ path: best.dataset.path }, this);
      this.show(best.dataset.path);
      best.focus({ preventScroll: true });
    }
  }
}
