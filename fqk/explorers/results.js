// The training and results explorer; losses are in nats a token.

const DASHES = ["none", "8 4", "2 3", "8 3 2 3", "14 4", "14 3 2 3"];
const LOSSES = {
  ordered: "ordered",
  shuffled: "shuffled",
  permutation_floor: "permutation floor",
  prefix_truncated: "prefix, cut off",
  prefix_padded: "prefix, padded",
};
const MARKS = {
  ordered: "M-4,0A4,4,0,1,0,4,0A4,4,0,1,0,-4,0",
  shuffled: "M-4,-4L4,4M-4,4L4,-4",
  permutation_floor: "M0,-6V6",
  prefix_truncated: "M-5,4L0,-5L5,4Z",
  prefix_padded: "M-5,-4L0,5L5,-4Z",
};

function mark(name, x, y, colour) {
  const fill = name === "ordered" ? colour : "none";
  return h("path", { d: MARKS[name], transform: `translate(${x},${y})`, fill, stroke: colour, "stroke-width": 2 });
}

// A short line in a variant's colour and dashes, for its checkbox.
function sample(colour, dash) {
  const stroke = { stroke: colour, "stroke-width": 3, "stroke-dasharray": dash };
  return h("svg", { width: 28, height: 8, "aria-hidden": "true" }, h("line", { x1: 0, x2: 28, y1: 4, y2: 4, ...stroke }));
}

function render({ model, el }) {
  const get = (name) => model.get(name);
  const { unit, variants, seeds, quantiles, runs } = get("data");
  const colour = {};
  const dash = {};
  for (const [name, family, sibling] of variants) {
    colour[name] = COLOURS.family[family];
    dash[name] = DASHES[sibling % DASHES.length];
  }
  const shown = () =>
    runs.flatMap((run, index) =>
      get("variants").includes(run.variant) && get("seeds").includes(run.seed) ? [index] : [],
    );
  // The run that is read is one that is shown, its point one that it has.
  const read = () => (shown().includes(get("run")) ? get("run") : shown()[0]);
  const lastPoint = () => (runs[read()]?.curve.length ?? 1) - 1;
  const point = () => Math.min(get("point"), lastPoint());
  const controls = [
    checkboxes(
      model,
      "variants",
      "variants",
      variants.map(([name]) => [name, name, sample(colour[name], dash[name])]),
    ),
    checkboxes(
      model,
      "seeds",
      "seeds",
      seeds.map((seed) => [seed, `${seed}`]),
    ),
    select(model, "curve", "curve", {
      options: () => [
        ["val", "validation loss"],
        ["train", "training loss"],
      ],
    }),
    select(model, "run", "record", {
      options: () => shown().map((index) => [index, `${runs[index].variant}, seed ${runs[index].seed}`]),
    }),
    slider(model, "point", "point", {
      range: () => [0, lastPoint()],
      show: () => `step ${runs[read()]?.curve[point()]?.step ?? "–"}`,
    }),
  ];

  // The curves; the nearest point to the pointer is read.
  function curves(width) {
    const points = shown().flatMap((run) => runs[run].curve.map((at, index) => ({ run, index, ...at })));
    const last = Math.max(...points.map(({ step }) => step));
    const most = Math.max(...points.map((at) => at[get("curve")]));
    const { svg, X, Y } = chart({
      width,
      height: 280,
      label: `${get("curve") === "val" ? "Validation" : "Training"} loss of ${shown().length} runs over training`,
      x: { domain: [0, last], title: "step", ticks: ticks(0, last) },
      y: { domain: [0, most], title: `loss, ${unit}`, ticks: ticks(0, most) },
    });
    const place = (at) => [X(at.step), Y(at[get("curve")])];
    for (const run of shown()) {
      const { variant, curve } = runs[run];
      const stroke = { stroke: colour[variant], "stroke-dasharray": dash[variant] };
      const d = line(curve.map(place));
      svg.append(h("path", { d, class: "curve", fill: "none", "stroke-width": run === read() ? 3.5 : 1.8, ...stroke }));
    }
    const here = runs[read()].curve[point()];
    if (here) {
      const [cx, cy] = place(here);
      svg.append(h("circle", { cx, cy, r: 5, fill: colour[runs[read()].variant], stroke: "currentColor" }));
    }
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const far = (at) => Math.hypot(...place(at).map((v, n) => v - [event.clientX - box.x, event.clientY - box.y][n]));
      const near = points.reduce((best, at) => (far(at) < far(best) ? at : best));
      if (near.run !== get("run") || near.index !== get("point")) put(model, { run: near.run, point: near.index });
    });
    return svg;
  }

  // Mean and error of one loss of several seeds, or of one; an error is null where one window was read.
  function spread(seeds) {
    const n = seeds.length;
    const mean = seeds.reduce((sum, [loss]) => sum + loss, 0) / n;
    if (n === 1) return { mean, error: seeds[0][1] };
    const squares = seeds.reduce((sum, [loss]) => sum + (loss - mean) ** 2, 0);
    return { mean, error: quantiles[n - 2] * Math.sqrt(squares / (n - 1) / n) };
  }

  // The final losses, a row a shown variant, each the mean over the shown seeds with its error.
  function finals(width) {
    const rows = get("variants").flatMap((variant) => {
      const losses = shown().map((run) => runs[run]).filter((run) => run.variant === variant && run.losses.ordered);
      if (!losses.length) return [];
      const found = Object.keys(LOSSES).map((name) => ({ name, ...spread(losses.map((run) => run.losses[name])) }));
      return [{ variant, seeds: losses.length, found }];
    });
    const several = rows.some((row) => row.seeds > 1);
    const single = rows.some((row) => row.seeds === 1);
    const most = Math.max(1, ...rows.flatMap(({ found }) => found.map(({ mean, error }) => mean + error)));
    const bars = several && single ? "± error" : several ? "± 95 % over seeds" : "± standard error";
    const { svg, X } = chart({
      width,
      height: 60 + 36 * rows.length,
      label: `Final losses of ${rows.length} variants`,
      x: { domain: [0, most], title: `loss ${bars}, ${unit}`, ticks: ticks(0, most) },
      y: { domain: [0, 1] },
    });
    rows.forEach(({ variant, found }, index) => {
      const y = 42 + 36 * index;
      svg.append(h("text", { x: X(0), y: y - 10 }, variant));
      for (const { name, mean, error } of found) {
        const [low, high] = [X(Math.max(0, mean - error)), X(mean + error)];
        const d = `M${low},${y - 4}v8m0,-4H${high}m0,-4v8`;
        const text = `${variant}, ${LOSSES[name]}: ${mean.toFixed(3)} ± ${error?.toFixed(3) ?? "–"}`;
        svg.append(h("g", {}, h("title", {}, text), h("path", { d, class: "error", fill: "none", stroke: "currentColor", "stroke-opacity": 0.7 }), mark(name, X(mean), y, colour[variant])));
      }
    });
    const explained = [
      several && "the 95 % interval over the chosen seeds (Student's t)",
      single && "the standard error over windows where one seed is chosen",
    ];
    return [svg, h("p", {}, `Bars: ${explained.filter(Boolean).join("; ")}.`)];
  }

  const key = () =>
    Object.entries(LOSSES).map(([name, text]) => {
      const size = { width: 16, height: 14, viewBox: "-8 -7 16 14", "aria-hidden": "true" };
      return h("span", { class: "legend" }, h("svg", size, mark(name, 0, 0, "currentColor")), text);
    });

  const traits = ["variants", "seeds", "curve", "run", "point"];
  explorer({ model, el }, "Training and results explorer", traits, controls, (width) => {
    if (!shown().length) return [readout("Choose a variant and a seed.")];
    const run = runs[read()];
    const here = run.curve[point()];
    const verdict = run.diverged_at ? `diverged at step ${run.diverged_at}` : run.causal ? "causal" : "leaks";
    const at = here ? `At step ${here.step}: training ${here.train.toFixed(3)}, validation ${here.val.toFixed(3)} ${unit}. ` : "";
    const final = ([mean, error, windows]) => [mean.toFixed(3), error === null ? "–" : error.toFixed(3), windows];
    return [
      curves(width),
      readout(h("strong", {}, `${run.variant}, seed ${run.seed}`), `, ${verdict}. ${at}`, h("code", {}, run.file), `, made on ${run.made}.`),
      h("table", {}, [
        h("caption", {}, `Its final losses, ${unit}`),
        h("tr", {}, ["", "mean", "± standard error", "windows"].map((head) => h("th", { scope: "col" }, head))),
        ...Object.keys(run.losses).map((name) => row(LOSSES[name], final(run.losses[name]))),
      ]),
      h("p", {}, key()),
      ...finals(width),
    ];
  });
}

export default { render };
