// What is drawn, and what it means: the drawing and its legend are both made of these tables.

const STATUS = {
  only: { sign: "+", word: "new", text: "the pass made it, or what it reads" },
  changed: { sign: "~", word: "changed", text: "it reads or does something else than before" },
  gone: { sign: "−", word: "gone", text: "not there after the pass; shown in the graph before it" },
};

const BOXES = {
  input: { word: "input", text: "an input of the graph, or of the body of a loop" },
  op: { word: "operation", text: "one operation: what it computes, and the type of its result" },
  loop: { word: "loop", text: "a loop with its slots; where it was written, if that is known" },
  graph: { word: "inner graph", text: "a graph that is applied as one operation" },
  output: { word: "output", text: "an output of the graph, or of the body of a loop" },
  group: { word: "group", text: "operations that are folded; a click opens it" },
};

// The role of a slot decides its colour. What each kind is, `scanopt explain` says; of some, this.
const ROLES = {
  read: "a sequence: a step reads a part of it",
  state: "a state: a step reads what steps before made of it",
  made: "a result of each step, of which rows are kept",
  fixed: "the same in each step, or a number of the loop",
};
const PORTS = {
  seq: { role: "read" },
  mit_mot: { role: "state" },
  mit_sot: { role: "state" },
  sit_sot: { role: "state" },
  untraced: { role: "state" },
  state: { role: "state" },
  nit_sot: { role: "made" },
  traced: { role: "made", text: "A value of each step, all of which are kept" },
  non_seq: { role: "fixed" },
  constant: { role: "fixed" },
  index: { role: "fixed", text: "The number of the step" },
  steps: { role: "fixed", text: "How many steps the loop runs" },
  input: { role: "fixed", text: "An input of the inner graph" },
  output: { role: "made", text: "An output of the inner graph" },
};

const roleOf = (kind) => PORTS[kind]?.role ?? "fixed";

const MARKS = {
  folded: { sign: "▸", text: "folded: a click on its title opens it" },
  open: { sign: "▾", text: "open: a click on its title folds it" },
  trimmed: { sign: "✂", text: "the buffer does not hold every step, or may not" },
  more: { sign: "…", text: "more slots, which a click shows; in an expression, what is left out" },
};

// How many parts are new, gone and changed: `+4 −7 ~2`.
const countsText = ({ only, gone, changed }) =>
  Object.entries({ only, gone, changed })
    .filter(([, count]) => count !== undefined)
    .map(([status, count]) => `${STATUS[status].sign}${count}`).join(" ");
