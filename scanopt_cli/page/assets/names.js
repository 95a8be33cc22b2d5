"use strict";
// Small helpers: elements of HTML and SVG, and data that was compressed.

const SVG = "http://www.w3.org/2000/svg";

// Texts become text nodes, never HTML: whatever a graph calls its variables is shown as it is.
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const html = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

const button = (text, label, onclick, more = {}) =>
  html("button", { type: "button", title: label, "aria-label": label, onclick, ...more }, text);

// A text in which names stand between backticks.
const withCode = (content) =>
  content.split("`").map((piece, n) => (n % 2 ? html("code", {}, piece) : piece));

const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

async function unpacked(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) =>
    c.charCodeAt(0),
  );
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
