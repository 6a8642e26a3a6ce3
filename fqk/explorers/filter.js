// The filter explorer. The first four functions are fqk/filters.py's and filter.py's mathematics:
// frequencies in cycles a token, lags, widths and periods in tokens.

// κ(t) = irfft(φ) at t = 0 … count − 1, of a spectrum at m/T, m = 0 … T/2, T even.
function irfft(phi, T, count) {
  const wave = Array.from({ length: T }, (_, k) => Math.cos((2 * Math.PI * k) / T));
  return Array.from({ length: count }, (_, t) =>
    phi.reduce((sum, value, m) => sum + (m % (T / 2) ? 2 : 1) * value * wave[(m * t) % T], 0) / T,
  );
}

// |rfft| of a kernel over a window of T tokens.
function amplitudes(kernel, T) {
  return Array.from({ length: T / 2 + 1 }, (_, m) => {
    const angle = (t) => (2 * Math.PI * ((m * t) % T)) / T;
    const real = kernel.reduce((sum, value, t) => sum + value * Math.cos(angle(t)), 0);
    return Math.hypot(real, kernel.reduce((sum, value, t) => sum + value * Math.sin(angle(t)), 0));
  });
}

function parameters(get) {
  const [data, family, period] = [get("data"), get("family"), get("period")];
  if (family === "trained") return data.heads[get("head")];
  let periods = [period];
  if (family === "random") {
    const low = Math.log(1 / get("context"));
    periods = [Math.exp(-low - (Math.log(1 / 4) - low) * data.draws[get("draw")])];
  } else if (family === "bumps") {
    periods = data.ladder.map((start) => (period * start) / data.ladder[0]);
  } else if (family !== "bump") {
    return { kind: family, period: periods, width: [get("width")] };
  }
  const bandwidth = periods.map((p) => get("bandwidth") / p);
  return { kind: "bumps", period: periods, bandwidth, amplitude: periods.map(() => 1) };
}

// κ at the circular lags, T of them, or one-sided at 0 … K − 1.
function kernelOf(get) {
  const [T, oneSided] = [get("context"), get("one_sided")];
  const { kind, period, bandwidth, amplitude, width } = parameters(get);
  if (kind === "bumps") {
    const along = oneSided ? 2 * T : T;
    const bump = (f, p) => amplitude[p] * Math.exp(-0.5 * ((f - 1 / period[p]) / bandwidth[p]) ** 2);
    const at = (f) => period.reduce((sum, _, p) => sum + bump(f, p), 0);
    const phi = Array.from({ length: along / 2 + 1 }, (_, m) => at(m / along));
    return irfft(phi, along, T);
  }
  const shape = {
    morlet: (tau) => Math.cos((2 * Math.PI * tau) / period[0]),
    "mexican hat": (tau) => 1 - (tau / width[0]) ** 2,
    gaussian: () => 1,
  }[kind];
  const lag = (t) => (oneSided || t < T / 2 ? t : t - T);
  const kernel = Array.from({ length: oneSided ? T / 2 : T }, (_, t) => {
    return shape(lag(t)) * Math.exp(-0.5 * (lag(t) / width[0]) ** 2);
  });
  const norm = oneSided ? kernel.reduce((sum, value) => sum + Math.abs(value), 0) : 1;
  return kernel.map((value) => value / norm);
}

// The shares of energy that are the future's: of κ at τ < 0, of G above its diagonal.
function futureShares(kernel, T, oneSided) {
  if (oneSided) return [0, 0];
  const energy = kernel.map((value) => value ** 2);
  const whole = energy.reduce((sum, value) => sum + value, 0);
  const future = energy.slice(T / 2).reduce((sum, value) => sum + value, 0);
  const above = energy.reduce((sum, value, t) => sum + t * value, 0); // t = −(i − j) mod T, T − |lag| times
  return [future / whole, above / (T * whole)];
}

// |φ| over the period, long ones left; zero frequency, which has no place there, stands at the left end.
function spectrumChart(phi, T, width) {
  const places = phi.map((_, m) => Math.max(m, 0.5) / T);
  const ends = [0.5 / T, 0.5];
  const { svg, X, Y } = chart({
    width,
    height: 190,
    label: `Amplitude of the spectrum over period, largest ${Math.max(...phi).toPrecision(3)}`,
    x: {
      domain: ends,
      log: true,
      title: "period 1/f, tokens",
      ticks: [[ends[0], "∞"], ...octaves(2, T).map((period) => [1 / period, period])],
    },
    y: { domain: [0, Math.max(...phi)], title: "|φ(f)|", ticks: ticks(0, Math.max(...phi), 3) },
  });
  const points = phi.map((value, m) => [X(places[m]), Y(value)]);
  svg.append(h("path", { d: line(points), fill: "none", stroke: "currentColor", "stroke-width": 2 }));
  return svg;
}

// κ over lags from −T/2, a bar a lag, the future's in the warning colour.
function kernelChart(kernel, T, oneSided, width) {
  const lags = Array.from({ length: oneSided ? T * 1.5 : T }, (_, index) => index - T / 2);
  const at = (tau) => (oneSided ? kernel[tau] : kernel[(tau + T) % T]) ?? 0;
  const ends = [Math.min(0, ...kernel), Math.max(0, ...kernel)];
  const { svg, X, Y } = chart({
    width,
    height: 190,
    label: `Kernel over lag, ${oneSided ? "none" : "half"} of its lags in the future`,
    x: { domain: [-T / 2, lags.length - T / 2], title: "lag τ, tokens", ticks: ticks(lags[0], lags.at(-1), 5) },
    y: { domain: ends, title: "κ(τ)", ticks: ticks(...ends, 3) },
  });
  const bars = (half) => half.map((tau) => `M${X(tau).toFixed(1)},${Y(0).toFixed(1)}V${Y(at(tau)).toFixed(1)}`);
  for (const [name, half] of [
    ["future", lags.filter((tau) => tau < 0)],
    ["past", lags.filter((tau) => tau >= 0)],
  ]) {
    const stroke = { stroke: COLOURS[name], "stroke-width": Math.max(1, (0.8 * width) / lags.length) };
    svg.append(h("path", { class: name, d: bars(half).join(""), ...stroke }));
  }
  svg.append(h("line", { class: "axis", x1: X(-T / 2), x2: X(lags.at(-1)), y1: Y(0), y2: Y(0) }));
  return svg;
}

// G as a picture: row i is what position i reads, past and future each in a colour of its own for
// positive and for negative values; the opacity is √|G|, so that faint values show.
function matrixPicture(kernel, T, oneSided, size, label) {
  const canvas = h("canvas", { width: T, height: T, role: "img", "aria-label": label });
  canvas.style = `width: ${size}px; height: ${size}px; image-rendering: pixelated`;
  const image = new ImageData(T, T);
  const top = Math.max(...kernel.map(Math.abs));
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const past = [COLOURS.past, COLOURS.below_past].map(rgb);
  const future = [COLOURS.future, COLOURS.below_future].map(rgb);
  for (let i = 0; i < T; i++) {
    for (let j = 0; j < T; j++) {
      const value = (oneSided ? kernel[i - j] : kernel[(i - j + T) % T]) ?? 0;
      const colour = (j > i ? future : past)[Number(value < 0)];
      image.data.set([...colour, 255 * Math.sqrt(Math.abs(value) / top)], 4 * (i * T + j));
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function render({ model, el }) {
  const get = (name) => model.get(name);
  const data = get("data");
  const is = (...families) => () => families.includes(get("family"));
  const families = data.families.map(([name, text]) => [name, text]);
  if (data.heads.length) families.push(["trained", "a trained head"]);
  const tokens = (value) => `${value} tokens`;
  const loaded = (head) => ({ context: data.heads[head].context, one_sided: data.heads[head].one_sided });
  const controls = [
    select(model, "family", "family", {
      options: () => families,
      then: (family) => (family === "trained" ? loaded(get("head")) : {}),
    }),
    select(model, "head", "head", {
      options: () => data.heads.map(({ label }, index) => [index, label]),
      then: loaded,
      visible: is("trained"),
    }),
    slider(model, "period", "period", {
      range: () => [2, 256],
      log: true,
      show: tokens,
      visible: is("bump", "bumps", "morlet"),
    }),
    slider(model, "bandwidth", "bandwidth σ/f", {
      range: () => [0.02, 1],
      step: 0.01,
      show: (value) => value.toFixed(2),
      visible: is("bump", "bumps", "random"),
    }),
    slider(model, "width", "width s", {
      range: () => [1, 64],
      step: 0.5,
      show: tokens,
      visible: is("morlet", "mexican hat", "gaussian"),
    }),
    slider(model, "draw", "draw", { range: () => [0, data.draws.length - 1], visible: is("random") }),
    select(model, "context", "window T", { options: () => data.contexts.map((T) => [T, tokens(T)]) }),
    checkbox(model, "one_sided", "one-sided"),
  ];
  const traits = ["family", "head", "period", "bandwidth", "width", "draw", "context", "one_sided"];
  explorer({ model, el }, "Filter explorer", traits, controls, (width) => {
    const [T, oneSided] = [get("context"), get("one_sided")];
    const kernel = kernelOf(get);
    const [share, above] = futureShares(kernel, T, oneSided).map(percent);
    const known = data.families.find(([name]) => name === get("family"));
    const name = known ? (known[oneSided ? 3 : 2] ?? "no variant of the book") : data.heads[get("head")].label;
    const half = width < 560 ? width : width / 2 - 8;
    const size = Math.min(width, 340);
    const caption = `G, what position i (downwards) reads of token j: ${above} of its energy is above the diagonal. `;
    return [
      readout(
        h("strong", { class: "share" }, share),
        " of κ's energy lies in the future, τ < 0. This is the filter of ",
        h("span", { class: "variant" }, name),
        `${described(parameters(get))}.`,
      ),
      h("div", { class: "pair" }, [
        spectrumChart(amplitudes(kernel, T), T, half),
        kernelChart(kernel, T, oneSided, half),
      ]),
      h("p", {}, [
        caption,
        legend("past", "past and present"),
        legend("below_past", "the same, below zero"),
        legend("future", "future"),
        legend("below_future", "the same, below zero"),
      ]),
      h("div", { class: "matrix" }, matrixPicture(kernel, T, oneSided, size, caption)),
    ];
  });
}

function described({ kind, period, width }) {
  const numbers = (values) => values.map((value) => Number(value.toPrecision(3))).join(", ");
  if (kind === "bumps") return `, period ${numbers(period)} tokens`;
  return `${kind === "morlet" ? `, period ${numbers(period)}` : ""}, width ${numbers(width)} tokens`;
}

export default { render };
