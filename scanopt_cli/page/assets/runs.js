// The table of passes in the text: a click on a row goes to the stage that the pass left, and the row
// of the stage that is shown is marked.

class Runs {
  constructor(goTo) {
    this.goTo = goTo;
    for (const table of document.querySelectorAll("table.runs")) {
      for (const row of table.querySelectorAll("tbody[data-stage]")) this.#link(table, row);
    }
  }

  #link(table, row) {
    const go = () => this.goTo(Number(table.dataset.drawn), Number(row.dataset.stage));
    const name = row.querySelector(".pass");
    name.replaceChildren(button(name.textContent, `Go to the graph after ${name.textContent}`, go,
      { class: "go" }));
    row.firstElementChild.addEventListener("click", (event) => {
      if (!event.target.closest("button")) go();
    });
  }

  #rows(drawn) {
    return document.querySelectorAll(`table.runs[data-drawn="${drawn}"] tbody[data-stage]`);
  }

  // Writes how many parts are new, gone and changed, as the bar above the picture has it.
  count(drawn, counts) {
    for (const row of this.#rows(drawn)) {
      const cell = row.querySelector(".change");
      const text = counts[Number(row.dataset.stage)];
      if (text && !cell.querySelector("b")) cell.prepend(html("b", {}, text), html("br"));
    }
  }

  mark(drawn, stage) {
    for (const marked of document.querySelectorAll(".runs .is-current")) {
      marked.classList.remove("is-current");
      marked.querySelector(".go").removeAttribute("aria-current");
    }
    for (const row of this.#rows(drawn)) {
      if (Number(row.dataset.stage) !== stage) continue;
      row.classList.add("is-current");
      row.querySelector(".go").setAttribute("aria-current", "step");
      this.#show(row);
    }
  }

  // Scrolls the text beside the picture, never the page, so that the row is in sight.
  #show(row) {
    const text = document.getElementById("text");
    if (getComputedStyle(text).overflowY !== "auto") return;
    const seen = text.getBoundingClientRect();
    const { top, bottom } = row.firstElementChild.getBoundingClientRect();
    if (top < seen.top) text.scrollTop += top - seen.top - 8;
    else if (bottom > seen.bottom) text.scrollTop += bottom - seen.bottom + 8;
  }
}
