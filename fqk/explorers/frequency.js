// The frequency explorer. Periods and places are in characters; cycle n covers start + n·period, rounded.

function cycleEnds(get, n) {
  // Halves to even, as Python rounds.
  const round = (x) => (x % 1 === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));
  return [round(get("start") + n * get("period")), round(get("start") + (n + 1) * get("period"))];
}

// The passage, every other cycle on a tinted ground, the one that is read marked; a click reads another.
function ruler(get, choose) {
  const { passage } = get("data");
  const spans = [h("span", {}, passage.slice(0, get("start")))];
  for (let n = 0; cycleEnds(get, n)[0] < passage.length; n++) {
    const [low, high] = cycleEnds(get, n);
    const marks = `cycle ${n % 2 ? "odd" : "even"} ${n === get("cycle") ? "read" : ""}`;
    spans.push(h("span", { class: marks, click: () => choose(n) }, passage.slice(low, high)));
  }
  return h("div", { class: "passage" }, spans);
}

// Every learned period of a run over its training; the chosen one drawn strong, the ruler's as a line.
function pathChart(run, at, period, width) {
  const { steps, periods } = run;
  const { svg, X, Y } = chart({
    width,
    height: 240,
    label: `Learned periods of ${run.variant}, seed ${run.seed}, over training`,
    x: { domain: [0, steps.at(-1)], title: "step", ticks: ticks(0, steps.at(-1), 4) },
    y: { domain: [2, 256], log: true, title: "period, tokens", ticks: octaves(2, 256) },
  });
  const colour = COLOURS.family[run.family];
  periods[0].forEach((heads, layer) =>
    heads.forEach((numbers, head) =>
      numbers.forEach((_, number) => {
        const chosen = layer === at.layer && head === at.head && number === at.number;
        const path = periods.map((now, point) => [X(steps[point]), Y(now[layer][head][number])]);
        const stroke = { stroke: colour, "stroke-width": chosen ? 3 : 1, "stroke-opacity": chosen ? 1 : 0.6 };
        svg.append(h("path", { d: line(path), fill: "none", ...stroke }));
        if (chosen) {
          const [cx, cy] = path[at.point];
          svg.append(h("circle", { cx, cy, r: 5, fill: colour, stroke: "currentColor" }));
        }
      }),
    ),
  );
  const y = Y(period);
  svg.append(h("line", { class: "axis", x1: X(0), x2: width - 10, y1: y, y2: y, "stroke-dasharray": "5 4" }));
  return svg;
}

function render({ model, el }) {
  const get = (name) => model.get(name);
  const { passage, begins, runs } = get("data");
  const cycles = () => Math.ceil((passage.length - get("start")) / get("period"));
  // A choice among learned periods takes the nearest that there is, and lays the ruler of it.
  const learned = () => {
    const { periods } = runs[get("run")];
    const point = Math.min(get("point"), periods.length - 1);
    const layer = Math.min(get("layer"), periods[point].length - 1);
    const head = Math.min(get("head"), periods[point][layer].length - 1);
    const number = Math.min(get("number"), periods[point][layer][head].length - 1);
    return { point, layer, head, number, period: periods[point][layer][head][number] };
  };
  const chosen = () => runs[get("run")].periods[0];
  const upTo = (count) => Array.from({ length: count }, (_, index) => [index, `${index}`]);
  const controls = [
    slider(model, "period", "ruler's period", {
      range: () => [2, 256],
      log: true,
      show: (value) => `${Number(value.toPrecision(3))} tokens`,
    }),
    slider(model, "start", "first character", { range: () => [0, 64] }),
    slider(model, "cycle", "cycle", { range: () => [0, cycles() - 1] }),
  ];
  if (runs.length) {
    controls.push(
      select(model, "run", "learned by", {
        options: () => runs.map(({ variant, seed }, index) => [index, `${variant}, seed ${seed}`]),
        then: learned,
      }),
      select(model, "layer", "layer", { options: () => upTo(chosen().length), then: learned }),
      select(model, "head", "head", { options: () => upTo(chosen()[0].length), then: learned }),
      select(model, "number", "which period", {
        options: () => upTo(chosen()[0][0].length).map(([n]) => [n, `${n + 1} of ${chosen()[0][0].length}`]),
        then: learned,
      }),
      slider(model, "point", "after step", {
        range: () => [0, runs[get("run")].steps.length - 1],
        show: (point) => `${runs[get("run")].steps[point]}`,
        then: learned,
      }),
    );
  }
  const traits = ["period", "start", "cycle", "run", "layer", "head", "number", "point"];
  explorer({ model, el }, "Frequency explorer", traits, controls, (width) => {
    const [low, high] = cycleEnds(get, get("cycle"));
    const units = ["words", "phrases", "lines"];
    const within = units.map((unit) => begins[unit].filter((at) => low <= at && at < high).length);
    const mean = units.map((unit) => (begins[unit].length * get("period")) / passage.length);
    return [
      ruler(get, (n) => put(model, { cycle: n })),
      readout(`Cycle ${get("cycle")} covers “${passage.slice(low, high).replaceAll("\n", "↵")}”.`),
      h("table", {}, [
        h("caption", {}, "How many begin in a cycle"),
        h("tr", {}, ["", ...units].map((unit) => h("th", { scope: "col" }, unit))),
        row(`cycle ${get("cycle")}`, within),
        row("on average", mean.map((value) => value.toFixed(2))),
      ]),
      ...(runs.length ? [pathChart(runs[get("run")], learned(), get("period"), width)] : []),
    ];
  });
}

export default { render };
