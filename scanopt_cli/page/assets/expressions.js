// Whole expressions. A box has the beginning of what it computes as text, and if that leaves out
// something, its operation in pieces: a number stands for what the input of that place computes.

const INFIX = / (?:[-+*/@]|\*\*) /;
const SOME = 600; // how many letters are shown at first
const ALL = 30000; // and at once, when all are asked for

const isHole = (piece) => typeof piece !== "string";
const lengthOf = (pieces) => pieces.reduce((sum, piece) => sum + (isHole(piece) ? 1 : piece.length), 0);

// What a box computes, one operation deep: texts, and boxes that compute what is left out.
function piecesOf(box, level, isInside) {
  const pieces = box.whole.length
    ? box.whole.map((piece) => {
      if (typeof piece === "string") return piece;
      const edge = box.edges.find(({ port }) => port === piece);
      return (edge && level.byId.get(edge.box)) ?? MARKS.more.sign;
    })
    : [box.text || box.label];
  return isInside && isInfix(pieces) ? ["(", ...pieces, ")"] : pieces;
}

// Whether an operator stands outside of all brackets.
function isInfix(pieces) {
  let outside = "";
  let depth = 0;
  for (const letter of pieces.map((piece) => (isHole(piece) ? "_" : piece)).join("")) {
    if ("([{".includes(letter)) depth += 1;
    else if (")]}".includes(letter)) depth -= 1;
    else if (!depth) outside += letter;
  }
  return INFIX.test(outside);
}

// What a box computes in at most so many letters; each level of operations as a whole.
function expanded(box, level, most, isInside = false) {
  let pieces = piecesOf(box, level, isInside);
  while (pieces.some(isHole)) {
    const next = pieces.flatMap((piece) => (isHole(piece) ? piecesOf(piece, level, true) : [piece]));
    if (lengthOf(next) > most) break;
    pieces = next;
  }
  return pieces;
}

// The expression of a box; a click on `…` shows what it stands for, and a button shows all.
function expression(box, level) {
  const shown = html("code", { class: "expression" });
  const all = button("Show all", "Show the whole expression", () => show(ALL), { class: "all" });
  const drawn = (pieces) => pieces.map((piece) => (isHole(piece) ? hole(piece) : piece));
  const hole = (inside) => {
    const one = button(MARKS.more.sign, "Show what is left out here", () => {
      one.replaceWith(...drawn(expanded(inside, level, SOME, true)));
      all.hidden = !shown.querySelector(".hole");
    }, { class: "hole" });
    return one;
  };
  const show = (most) => {
    shown.replaceChildren(...drawn(expanded(box, level, most)));
    all.hidden = !shown.querySelector(".hole");
  };
  show(SOME);
  return html("div", {}, shown, " ", all);
}

// The boxes of operations that make what ports of a box read, or what an output is.
const makersOf = (box, level, port) =>
  box.edges.filter((edge) => edge.port === port).map((edge) => level.byId.get(edge.box))
    .filter((maker) => maker?.kind === "op");
