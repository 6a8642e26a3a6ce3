// The EMD explorer. Periods are in tokens; ``growth`` is the mean factor from one IMF's period to the next's.

function opened({ length, curves, ...rest }) {
  const values = unpacked(curves, Int8Array);
  const rows = Array.from({ length: values.length / length }, (_, k) => values.slice(k * length, (k + 1) * length));
  return { ...rest, series: rows[0], imfs: rows.slice(1) };
}

const inTokens = (period) => (period === null ? "no period" : `${Number(period.toPrecision(3))} tokens`);

// One curve, over all its tokens, to its own scale.
function curve(values, title, width, strong) {
  const { svg, X, Y } = chart({
    width,
    height: 60,
    label: title,
    x: { domain: [0, values.length - 1] },
    y: { domain: [-127, 127], title },
  });
  const points = Array.from(values, (value, t) => [X(t), Y(value)]);
  const stroke = { stroke: strong ? COLOURS.future : "currentColor", "stroke-width": strong ? 2 : 1 };
  svg.append(h("path", { d: line(points), fill: "none", ...stroke }));
  return svg;
}

// The periods of both, a row each, and the learned ones as lines through both.
function periodChart(head, noise, imf, width) {
  const all = [...head.periods, ...noise.periods, ...head.learned].filter((period) => period !== null);
  const domain = [2, Math.max(64, ...all) * 1.1];
  const { svg, X, Y } = chart({
    width,
    height: 150,
    label: `Mean periods of the IMFs of ${head.label} and of ${noise.label}, and the learned periods`,
    x: { domain, log: true, title: "period, tokens", ticks: octaves(...domain) },
    y: { domain: [0, 3] },
  });
  for (const period of head.learned) {
    const place = { x1: X(period), x2: X(period), y1: Y(0), y2: Y(3) };
    svg.append(h("line", { class: "learned", stroke: COLOURS.past, "stroke-width": 3, ...place }));
  }
  for (const [row, filled, { label, periods }] of [[1.9, true, head], [0.4, false, noise]]) {
    svg.append(h("text", { x: X(2), y: Y(row) - 12 }, label));
    periods.forEach((period, k) => {
      if (period === null) return;
      const colour = k === imf ? COLOURS.future : "currentColor";
      const look = { fill: filled ? colour : "none", stroke: colour, "stroke-width": 2 };
      svg.append(h("circle", { cx: X(period), cy: Y(row), r: k === imf ? 7 : 4, ...look }));
    });
  }
  return svg;
}

function render({ model, el }) {
  const get = (name) => model.get(name);
  const data = get("data");
  const heads = data.heads.map(opened);
  const noise = opened(data.noise);
  const head = () => heads[get("head")];
  const controls = [
    select(model, "head", "series", { options: () => heads.map(({ label }, index) => [index, label]) }),
    slider(model, "imf", "IMF", {
      range: () => [0, Math.max(head().imfs.length, noise.imfs.length) - 1],
      show: (imf) => `${imf + 1}`,
    }),
  ];
  explorer({ model, el }, "EMD explorer", ["head", "imf"], controls, (width) => {
    const imf = get("imf");
    const half = width < 560 ? width : width / 2 - 8;
    const period = head().periods[imf] ?? null;
    const far = (learned) => Math.abs(Math.log(learned / period));
    const nearest = head().learned.reduce((best, now) => (far(now) < far(best) ? now : best), head().learned[0]);
    const growth = ({ growth: factor }) => (factor === null ? "–" : factor.toFixed(2));
    const column = ({ label, series, imfs }) =>
      h("div", {}, [
        curve(series, label, half, false),
        ...imfs.map((values, k) => curve(values, `IMF ${k + 1}`, half, k === imf)),
      ]);
    return [
      readout(
        h("strong", {}, `IMF ${imf + 1}`),
        `: ${inTokens(period)}; in white noise ${inTokens(noise.periods[imf] ?? null)}.`,
        period && nearest ? ` The nearest learned period is ${inTokens(nearest)}.` : "",
        ` From one IMF to the next the period grows by a factor of ${growth(head())}, in white noise of ${growth(noise)}.`,
      ),
      periodChart(head(), noise, imf, width),
      h("p", {}, [legend("past", "learned periods"), legend("future", "the IMF that is read")]),
      h("div", { class: "pair" }, [column(head()), column(noise)]),
    ];
  });
}

export default { render };
