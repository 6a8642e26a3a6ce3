// Long tables sort by a header, up, down and back as they were, and show the rows that hold a word.

const LONG = 8; // rows that are read at a glance

const text = (row, column) => row.cells[column]?.textContent.trim() ?? "";

// A cell's number: its value if it begins with one, be it "1.899 ± 0.055", "12,600" or "5.3 %".
function number(cell) {
  const found = cell.replaceAll("−", "-").match(/^[+-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?(?![\w.])/);
  return found ? Number(found[0].replaceAll(",", "")) : NaN;
}

// Numbers by value before words by letter; what is empty comes last in either direction.
function compare(a, b, direction) {
  const [empty, other] = [a, b].map((cell) => /^[–-]?$/.test(cell));
  if (empty || other) return empty - other;
  const [m, n] = [number(a), number(b)];
  if (isNaN(m) && isNaN(n)) return direction * a.localeCompare(b, "en", { numeric: true });
  return direction * (isNaN(m) - isNaN(n) || m - n);
}

function sortable(headers, body, rows) {
  headers.forEach((header, column) => {
    if (!header.textContent.trim()) return;
    const button = document.createElement("button");
    const label = header.querySelector("p") ?? header;
    button.type = "button";
    button.append(...label.childNodes);
    label.append(button);
    button.addEventListener("click", () => {
      const next = { ascending: "descending", descending: null }[header.ariaSort];
      const direction = next === undefined ? "ascending" : next;
      for (const each of headers) each.ariaSort = each === header ? direction : null;
      const sign = { ascending: 1, descending: -1 }[direction];
      const order = sign
        ? rows.toSorted((a, b) => compare(text(a, column), text(b, column), sign))
        : rows;
      body.append(...order);
    });
  });
}

function filterable(table, rows) {
  const field = document.createElement("div");
  field.className = "fqk-filter";
  field.innerHTML = '<label>Filter <input type="search"></label> <output></output>';
  const input = field.querySelector("input");
  if (table.caption) input.ariaLabel = `Filter the table ${table.caption.textContent.trim()}`;
  const show = () => {
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(input.value.toLowerCase());
    const left = rows.filter((row) => !row.hidden).length;
    field.querySelector("output").value = `${left} of ${rows.length} rows`;
  };
  input.addEventListener("input", show);
  show();
  (table.closest(".fqk-table, .pst-scrollable-table-container") ?? table).before(field);
}

for (const table of document.querySelectorAll(".bd-article table")) {
  const [body] = table.tBodies;
  const rows = [...(body?.rows ?? [])];
  if (!table.tHead || rows.length <= LONG || table.closest(".fqk-explorer")) continue;
  sortable([...table.tHead.rows[0].cells], body, rows);
  filterable(table, rows);
}
