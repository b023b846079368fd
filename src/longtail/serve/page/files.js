// Texts from files, and tables of answers for files: text, CSV, TSV and JSON lines.

// As the reader of training names them (longtail/data/find_columns.py).
const TEXT_NAMES = ["title", "text", "content", "abstract", "description", "body", "sentence", "question", "query", "document"];
const OTHER_NAMES = ["labels", "label", "subjects", "subject", "tags", "categories", "category", "keywords", "uid", "id"];

/**
 * A file as a table: {name, columns, rows, column}; rows are arrays of strings, column is the number of the one that
 * seems to hold the text. An Error says what is wrong with it.
 */
export function read(name, text) {
  const ending = name.toLowerCase().split(".").at(-1);
  let table;
  if (["csv", "tsv"].includes(ending)) table = separated(text, ending === "tsv" ? "\t" : undefined);
  else if (["jsonl", "ndjson", "json"].includes(ending)) table = objects(name, text);
  else table = { columns: ["text"], rows: text.split(/\r\n|\n|\r/).filter((line) => line.trim()).map((line) => [line]) };
  if (text.includes("\0")) throw new Error(`${name} is not a text file.`);
  if (!table.rows.length) throw new Error(`${name} holds no texts.`);
  return { name, ...table, column: textColumn(table) };
}

function separated(text, separator) {
  const first = text.split(/\r\n|\n|\r/, 1)[0];
  const found = [",", ";", "\t"].map((one) => [first.split(one).length, one]).sort((a, b) => b[0] - a[0])[0][1];
  const rows = cells(text, separator ?? found);
  const width = rows.reduce((most, row) => Math.max(most, row.length), 0);
  for (const row of rows) while (row.length < width) row.push("");
  const named = rows[0]?.some((cell) => [...TEXT_NAMES, ...OTHER_NAMES].includes(cell.trim().toLowerCase()));
  // Several words in a cell of the first row: it is no row of names.
  const heading = named || (rows.length > 1 && !rows[0].some((cell) => cell.trim().split(/\s+/).length > 3));
  const columns = heading ? rows.shift() : Array.from({ length: width }, (_, n) => `column ${n + 1}`);
  return { columns: columns.map((column, n) => column.trim() || `column ${n + 1}`), rows };
}

/** The rows of RFC 4180: cells may be in quotes, in which line ends and separators are text and "" is a quote. */
export function cells(text, separator) {
  const rows = [];
  let row = [];
  let cell = "";
  let quoted = false;
  const endRow = () => {
    row.push(cell);
    if (row.length > 1 || row[0].trim()) rows.push(row);
    row = [];
    cell = "";
  };
  for (let n = 0; n < text.length; n++) {
    const one = text[n];
    if (quoted) {
      if (one !== '"') cell += one;
      else if (text[n + 1] === '"') {
        cell += '"';
        n++;
      } else quoted = false;
    } else if (one === '"' && cell === "") quoted = true;
    else if (one === separator) {
      row.push(cell);
      cell = "";
    } else if (one === "\n" || one === "\r") {
      if (one === "\r" && text[n + 1] === "\n") n++;
      endRow();
    } else cell += one;
  }
  if (cell || row.length) endRow();
  return rows;
}

function objects(name, text) {
  let found;
  try {
    // Some call a list of objects .json, others lines of them.
    const whole = JSON.parse(text);
    found = Array.isArray(whole) ? whole : [whole];
  } catch {
    found = text.split("\n").flatMap((line, n) => {
      if (!line.trim()) return [];
      try {
        return [JSON.parse(line)];
      } catch {
        throw new Error(`Line ${n + 1} of ${name} is not JSON.`);
      }
    });
  }
  if (found.every((one) => typeof one === "string")) return { columns: ["text"], rows: found.map((one) => [one]) };
  const columns = [...new Set(found.flatMap((one) => (one && typeof one === "object" ? Object.keys(one) : [])))];
  if (!columns.length) throw new Error(`${name} holds neither texts nor objects with texts.`);
  const plain = (value) => (typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value));
  return { columns, rows: found.map((one) => columns.map((column) => plain(one?.[column]))) };
}

function textColumn({ columns, rows }) {
  for (const name of TEXT_NAMES) {
    const at = columns.findIndex((column) => column.toLowerCase() === name);
    if (at >= 0) return at;
  }
  const some = rows.slice(0, 100);
  const words = columns.map((_, n) => some.reduce((sum, row) => sum + row[n].trim().split(/\s+/).length, 0));
  return words.indexOf(Math.max(...words));
}

// ---- answers

const cellOf = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** Values of a row in one cell: with | between them, or, where a value has one itself, as a JSON list. */
const joined = (values, json) => (json ? JSON.stringify(values) : values.join("|"));

/** The columns that came in, then labels, names and scores, as `longtail predict --output FILE.csv` writes them. */
export function asCsv({ columns, rows }, results) {
  const taken = ["labels", "names", "scores"].some((name) => columns.includes(name));
  const ours = ["labels", "names", "scores"].map((name) => (taken ? `predicted_${name}` : name));
  const bar = (name) => results.some((found) => found?.some((one) => one[name].includes("|")));
  const [labels, names] = [bar("label"), bar("name")];
  const line = (row) => `${row.map(cellOf).join(",")}\r\n`;
  return [
    line([...columns, ...ours]),
    ...rows.slice(0, results.length).map((row, n) => {
      const found = results[n] ?? [];
      return line([
        ...row,
        joined(found.map((one) => one.label), labels),
        joined(found.map((one) => one.name), names),
        found.map((one) => one.score).join("|"),
      ]);
    }),
  ];
}

export function asJsonLines({ columns, rows }, results) {
  return rows.slice(0, results.length).map((row, n) => {
    const found = (results[n] ?? []).map(({ label, name, score }) => ({ label, name, score }));
    return `${JSON.stringify({ ...Object.fromEntries(columns.map((column, m) => [column, row[m]])), results: found })}\n`;
  });
}
