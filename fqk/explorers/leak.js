// The leak microscope. Predictions are lists of [symbol, probability], the most probable first and last the
// symbol that follows; what is stored and how is said in leak.py.

const SPELT = { "\n": "line end", " ": "space" };
const spelt = (symbol) => SPELT[symbol] ?? symbol;

// The stored numbers of one variant, by place, lag and letter.
function opened(data, variant) {
  const stored = data.stored[variant];
  const [ids, idsBefore] = [stored.ids, stored.ids_before].map((text) => unpacked(text, Uint8Array));
  const [p, pBefore, moved] = ["p", "p_before", "moved"].map((name) => unpacked(stored[name], Uint16Array));
  const shown = data.shown + 1;
  const list = (symbols, shares, at) =>
    Array.from({ length: shown }, (_, n) => [data.symbols[symbols[at * shown + n]], shares[at * shown + n] / 65535]);
  return {
    influence: unpacked(stored.influence, Uint8Array),
    before: (place) => list(idsBefore, pBefore, place),
    change(place, lag, letter) {
      const [row, column] = [data.lags.indexOf(lag), data.letters.indexOf(data.symbols.indexOf(letter))];
      if (row < 0 || column < 0) return null;
      const at = (place * data.lags.length + row) * data.letters.length + column;
      return { before: list(idsBefore, pBefore, place), after: list(ids, p, at), moved: moved[at] / 65535 };
    },
  };
}

// The passage; each letter's ground says how far it can move the prediction at the place, 0 to 255.
function colouredText(data, influence, place, changed, letter, choose) {
  const length = data.passage.length - 1;
  const letters = data.passage.slice(0, length).map((id, j) => {
    const share = influence[place * length + j] / 255;
    const opacity = Math.round(140 * Math.sqrt(share)).toString(16).padStart(2, "0");
    const ground = COLOURS[j > place ? "future" : "past"] + opacity;
    const symbol = j === changed ? letter : data.symbols[id];
    const marks = `token ${j === place ? "place" : ""} ${j === changed ? "changed" : ""}`;
    const title = `place ${j}: moves up to ${percent(share)}`;
    return h(
      "span",
      { class: marks, style: `background: ${ground}`, title, click: () => choose(j) },
      symbol === "\n" ? "↵\n" : symbol,
    );
  });
  return h("div", { class: "passage" }, letters);
}

function render({ model, el }) {
  const get = (name) => model.get(name);
  const data = get("data");
  const length = data.passage.length - 1;
  const letters = model.inlined ? data.letters.map((id) => data.symbols[id]) : data.symbols;
  const variants = Object.keys(data.stored);
  const open = Object.fromEntries(variants.map((name) => [name, opened(data, name)]));
  const ends = () => {
    const [low, high] = [-get("place"), length - 1 - get("place")];
    return model.inlined ? [Math.max(low, data.lags[0]), Math.min(high, data.lags.at(-1))] : [low, high];
  };
  const kept = () => ({ lag: Math.min(Math.max(get("lag"), ends()[0]), ends()[1]) });
  const controls = [
    select(model, "variant", "variant", { options: () => variants.map((name) => [name, name]) }),
    slider(model, "place", "position i", { range: () => [0, length - 1], then: kept }),
    slider(model, "lag", "change letter", {
      range: ends,
      show: (lag) => `i ${lag < 0 ? "−" : "+"} ${Math.abs(lag)}`,
    }),
    select(model, "letter", "into", { options: () => letters.map((letter) => [letter, spelt(letter)]) }),
  ];
  // The model's answer, if it is to this question; else what is stored, if it is.
  const change = () => {
    const answer = get("answer");
    const asked = ["variant", "place", "lag", "letter"].every((name) => answer[name] === get(name));
    return asked ? answer : open[get("variant")].change(get("place"), get("lag"), get("letter"));
  };
  const traits = ["variant", "place", "lag", "letter", "answer"];
  explorer({ model, el }, "Leak microscope", traits, controls, () => {
    const [variant, place, lag, letter] = ["variant", "place", "lag", "letter"].map(get);
    const choose = (j) => {
      put(model, { place: j });
      put(model, kept());
    };
    const text = colouredText(data, open[variant].influence, place, place + lag, letter, choose);
    const grounds = h("p", {}, [
      legend("past", "letters up to i"),
      legend("future", "letters after i"),
      "The stronger the colour, the further that letter can move the prediction at i (outlined).",
    ]);
    const found = change();
    if (!found) return [text, grounds, readout("This change is not stored: it takes a kernel to answer.")];
    const was = data.symbols[data.passage[place + lag]];
    const cells = (list) => list.slice(0, -1).map(([symbol, p]) => `${spelt(symbol)} ${percent(p)}`);
    const follows = data.symbols[data.passage[place + 1]];
    return [
      text,
      grounds,
      readout(
        `“${spelt(was)}” at i ${lag < 0 ? "−" : "+"} ${Math.abs(lag)} changed into “${spelt(letter)}” moves `,
        h("strong", { class: "moved" }, percent(found.moved)),
        ` of the prediction that ${variant} makes at i = ${place}. `,
        `The play's next letter, “${spelt(follows)}”, has `,
        h("span", { class: "follows" }, `${percent(found.before.at(-1)[1])} before and `),
        h("span", { class: "follows" }, `${percent(found.after.at(-1)[1])} after.`),
      ),
      h("table", {}, [
        h("caption", {}, "Most probable next letters"),
        row("before", cells(found.before)),
        row("after", cells(found.after)),
      ]),
    ];
  });
}

export default { render };
