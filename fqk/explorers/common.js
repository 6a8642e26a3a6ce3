// What every explorer is drawn with. Python puts the palette before this text and an explorer's own after it.

const DRAWN = new Set(["svg", "g", "path", "line", "text", "rect", "circle", "title"]);
let fields = 0;

// An HTML or SVG element with attributes and children; a function is a listener, null leaves one out.
function h(tag, attributes = {}, ...children) {
  const element = DRAWN.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat());
  return element;
}

// A model without a kernel: the same get, set and on as a widget's.
function inlined(state) {
  const listeners = {};
  return {
    inlined: true,
    get: (name) => state[name],
    set(name, value) {
      if (state[name] === value) return;
      state[name] = value;
      for (const listener of listeners[`change:${name}`] ?? []) listener();
    },
    on: (event, listener) => (listeners[event] ??= []).push(listener),
    save_changes() {},
  };
}

function put(model, values) {
  for (const [name, value] of Object.entries(values)) model.set(name, value);
  model.save_changes();
}

// Numbers packed by Python; little-endian, as every browser's platform is.
function unpacked(text, Type) {
  return new Type(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
}

// An explorer: its controls above, what it draws below; both follow the traits and the width.
function explorer({ model, el }, title, traits, controls, draw) {
  const form = h("div", { class: "controls" }, controls);
  const drawn = h("div", { class: "drawn" });
  const root = h("section", { class: "fqk-explorer", "aria-label": title }, form, drawn);
  // JupyterLab would take the arrow keys for shortcuts of its own.
  for (const input of form.querySelectorAll("input, select")) input.dataset.lmSuppressShortcuts = "true";
  root.style.setProperty("--past", COLOURS.past);
  root.style.setProperty("--future", COLOURS.future);
  el.replaceChildren(root);
  let width = 0;
  const refresh = () => {
    for (const control of controls) control.refresh();
    if (width) drawn.replaceChildren(...draw(width));
  };
  for (const name of traits) model.on(`change:${name}`, refresh);
  new ResizeObserver(() => {
    const now = Math.min(Math.floor(root.clientWidth), 720);
    if (now !== width) {
      width = now;
      refresh();
    }
  }).observe(root);
  refresh();
}

function field(label, input, ...more) {
  input.id = `fqk-field-${fields++}-${Math.random().toString(36).slice(2)}`;
  const name = h("label", { for: input.id }, label);
  return h("div", { class: "field" }, name, input, ...more);
}

// A slider on a trait. ``range`` gives [min, max] now; ``log`` moves in twentieths of an octave;
// ``then`` gives other traits to set with it.
function slider(model, trait, label, options) {
  const { range, step = 1, log = false, show = String, then = () => ({}), visible = () => true } = options;
  const input = h("input", {
    type: "range",
    step: log ? 0.05 : step,
    input: () => {
      const moved = Number(input.value);
      put(model, { [trait]: log ? Number((2 ** moved).toPrecision(3)) : moved });
      put(model, then());
    },
  });
  const value = h("span", { class: "value", "aria-hidden": "true" }); // spoken as the slider's own
  const element = field(label, input, value);
  element.refresh = () => {
    const ends = range();
    const now = model.get(trait);
    element.hidden = !visible();
    [input.min, input.max] = log ? ends.map(Math.log2) : ends;
    input.value = log ? Math.log2(now) : now;
    value.textContent = show(now);
    input.setAttribute("aria-valuetext", show(now));
  };
  return element;
}

// A choice of a trait's value among [value, text] pairs; ``then`` gives other traits to set with it.
function select(model, trait, label, { options, then = () => ({}), visible = () => true }) {
  const input = h("select", {
    change: () => {
      const value = options()[input.selectedIndex][0];
      put(model, { [trait]: value });
      put(model, then(value));
    },
  });
  const element = field(label, input);
  let shown = "";
  element.refresh = () => {
    element.hidden = !visible();
    const now = options();
    if (shown !== JSON.stringify(now)) {
      shown = JSON.stringify(now);
      input.replaceChildren(...now.map(([, text]) => h("option", {}, text)));
    }
    input.selectedIndex = now.findIndex(([value]) => value === model.get(trait));
  };
  return element;
}

function checkbox(model, trait, label) {
  const input = h("input", { type: "checkbox", change: () => put(model, { [trait]: input.checked }) });
  const element = field(label, input);
  element.refresh = () => (input.checked = model.get(trait));
  return element;
}

// Several of a trait's values, from [value, text, mark] triples, the mark an element before the text.
function checkboxes(model, trait, label, options) {
  const boxes = options.map(([value, text, mark]) => {
    const input = h("input", {
      type: "checkbox",
      change: () => {
        const chosen = options.map(([v]) => v).filter((v) => (v === value ? input.checked : isChosen(v)));
        put(model, { [trait]: chosen });
      },
    });
    return { value, input, element: h("label", {}, input, mark ?? [], text) };
  });
  const isChosen = (value) => model.get(trait).includes(value);
  const all = boxes.map((box) => box.element);
  const element = h("fieldset", {}, h("legend", {}, label), h("div", { class: "boxes" }, all));
  element.refresh = () => boxes.forEach((box) => (box.input.checked = isChosen(box.value)));
  return element;
}

function row(head, cells) {
  return h("tr", {}, h("th", { scope: "row" }, head), cells.map((cell) => h("td", {}, `${cell}`)));
}

// What a screen reader announces when a control moves, and everybody reads.
function readout(...children) {
  return h("p", { class: "readout", role: "status" }, children);
}

// A colour and what it stands for.
function legend(colour, text) {
  const swatch = h("span", { class: "swatch", style: `background: ${COLOURS[colour] ?? colour}` });
  return h("span", { class: "legend" }, swatch, text);
}

// A chart's ground: axes with ticks and titles. Returns the svg and the scales x and y, data to pixels.
// An axis is {domain: [low, high], title, ticks, log}; a tick is a value or [value, text].
function chart({ width, height, label, x, y }) {
  const left = y.ticks ? 46 : 8;
  const bottom = x.ticks ? 38 : 6;
  const top = 22;
  const scale = ({ domain, log }, from, to) => {
    const [low, high] = log ? domain.map(Math.log) : domain;
    return (value) => from + ((to - from) * ((log ? Math.log(value) : value) - low)) / (high - low || 1);
  };
  const X = scale(x, left, width - 10);
  const Y = scale(y, height - bottom, top);
  const svg = h("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  svg.append(h("title", {}, label));
  for (const [value, text] of (x.ticks ?? []).map((tick) => [tick].flat())) {
    svg.append(
      h("line", { class: "grid", x1: X(value), x2: X(value), y1: top, y2: height - bottom }),
      h("text", { x: X(value), y: height - bottom + 14, "text-anchor": "middle" }, `${text ?? value}`),
    );
  }
  for (const [value, text] of (y.ticks ?? []).map((tick) => [tick].flat())) {
    svg.append(
      h("line", { class: "grid", x1: left, x2: width - 10, y1: Y(value), y2: Y(value) }),
      h("text", { x: left - 5, y: Y(value) + 4, "text-anchor": "end" }, `${text ?? value}`),
    );
  }
  svg.append(
    h("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, x.title ?? ""),
    h("text", { x: 0, y: 11 }, y.title ?? ""),
  );
  return { svg, X, Y };
}

// About n round values from low to high.
function ticks(low, high, n = 4) {
  const rough = (high - low || 1) / n;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) {
    found.push(Number(value.toPrecision(6)));
  }
  return found;
}

// The powers of two between low and high.
function octaves(low, high) {
  return Array.from({ length: 12 }, (_, power) => 2 ** power).filter((v) => v >= low && v <= high);
}

function line(points) {
  return points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");
}

// Nothing and everything are said of exact values only; the space does not break.
function percent(share) {
  if (share > 0 && share < 0.0005) return "< 0.1\u00a0%";
  if (share < 1 && share >= 0.9995) return "> 99.9\u00a0%";
  return `${(100 * share).toFixed(1)}\u00a0%`;
}
