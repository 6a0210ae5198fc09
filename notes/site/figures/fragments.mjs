// Which lane holds which element: choose a lane, or touch an element.
import { Picture, count, list, tile, width } from './paint.mjs';
import { frame, items, screenWidth, slider } from './parts.mjs';

const elementsOf = (matrix) => matrix.places[0].length;

/// Each element in its cell: the lane that has it, and which of the lane's elements it is; a colour is a register.
function drawMatrix(picture, matrix, left, top, cell, { lane, high = cell, short = false } = {}) {
  matrix.places.forEach((places, owner) =>
    places.forEach(([row, column], e) => {
      const x = left + column * cell, y = top + row * high,
        mates = lane !== undefined && matrix.use === 'accumulator' ? matrix.row_mates[lane] : [];
      const names =
        owner === lane ? 'chosen s4' : mates.includes(owner) ? `faint s4` : tile(Math.floor(e / matrix.per_register));
      picture.rect(x, y, cell, high, names, { data: `data-lane="${owner}" data-place="${row},${column}"` });
      const on = owner === lane ? ' on' : '';
      picture.text(x + cell / 2, y + high / 2 - 1, owner, `${short ? 'tiny ' : high > 30 ? '' : 'small '}mid bold${on}`);
      picture.text(x + cell / 2, y + high - (high > 25 ? 4 : 2), short ? e : `${matrix.name}[${e}]`, `tiny mid${on}`);
    }),
  );
}

/// What the picture of an MMA's operands says beside them, line by line.
function linesOf(matrices) {
  const held = matrices.map((m) => `${m.name} (${m.rows} x ${m.columns}): ${elementsOf(m)} elements per lane` +
    `${m.per_register > 1 ? `, ${m.per_register} to a register` : ''}.`);
  const cells = ['Each cell: its lane, and which of the lane’s elements it is.', 'A colour: a register.'];
  if (matrices.length === 1) return [...cells, ...held];
  const [a, b, result] = matrices.map(({ name }) => name);
  const shares = [`Lanes 0 to 3 share a row of ${a}, a column of ${b} and a row of ${result};`, 'lanes 4 to 7 share the next, and so on.'];
  return [`${result} = ${a} ${b} + ${result}.`, ...cells, ...held, ...shares];
}

/// A matrix with the numbers of its rows and columns.
function drawAlone(picture, matrix, left, cell, options) {
  const { high } = options, names = cell > 30 ? 'small' : 'tiny';
  for (let c = 0; c < matrix.columns; ++c) picture.text(left + (c + 0.5) * cell, 14, c, `${names} mid soft`);
  for (let r = 0; r < matrix.rows; ++r) picture.text(left - (cell > 30 ? 6 : 2), 20 + (r + 0.6) * high, r, `${names} end soft`);
  drawMatrix(picture, matrix, left, 20, cell, options);
  picture.height = 20 + matrix.rows * high + 4;
  return picture;
}

export function drawFragments(facts) {
  const picture = new Picture(), { matrices } = facts;
  const lines = linesOf(matrices), last = matrices.at(-1), [row, column] = last.places[5][1];
  picture.say(`${lines.join(' ')} For example, row ${row} and column ${column} of ${last.name} are with lane 5, its element 1.`);
  if (matrices.length === 1) return drawAlone(picture, matrices[0], (width - matrices[0].columns * 40) / 2, 40, { high: 40 });
  // As in a product on paper: the left operand beside the result, the right one above it.
  const [a, b, result] = matrices, cell = 28, gap = 12;
  const resultLeft = a.columns * cell + gap, resultTop = b.rows * cell + gap;
  drawMatrix(picture, a, 0, resultTop, cell);
  drawMatrix(picture, b, resultLeft, 0, cell);
  drawMatrix(picture, result, resultLeft, resultTop, cell);
  lines.forEach((text, i) => picture.text(0, 22 * (i + 1), text, i === 0 ? 'bold' : 'small'));
  picture.height = resultTop + a.rows * cell + 4;
  return picture;
}

const held = (matrix, lane) => matrix.places[lane].map(([row, column], e) => `${matrix.name}[${e}] = (${row}, ${column})`).join('; ');

/// How the values of a row come together, and how its factor comes back.
function rowText(matrix, lane) {
  const mates = matrix.row_mates[lane];
  const distances = mates
    .map((mate) => mate ^ lane)
    .filter((d) => d > 0 && (d & (d - 1)) === 0)
    .sort((a, b) => a - b);
  const rows = [...new Set(matrix.places[lane].map(([row]) => row))];
  const shuffles = distances.map((d) => `__shfl_xor_sync(mask, x, ${d})`);
  const factors = rows.map((row) => `__shfl_sync(mask, factor, ${row})`);
  return [
    `Only lanes ${list(mates.map(String))} hold rows ${list(rows.map(String))} of ${matrix.name}. After ${list(shuffles)}, ` +
      'each of these lanes has the maximum or the sum of its rows.',
    `If lane r holds the factor of row r, lane ${lane} gets the factors of its rows by ${list(factors)}.`,
  ];
}

export function fragments(facts) {
  const show = () => {
    const lane = chosen.value, short = screenWidth() < width, alone = facts.matrices.length === 1;
    const cell = short ? 16 : alone ? 34 : 24, high = short ? 24 : alone ? 26 : 22;
    const pictures = facts.matrices.map((matrix) => {
      const picture = drawAlone(new Picture(14 + matrix.columns * cell), matrix, 14, cell, { lane, high, short });
      picture.text(-2, 14, matrix.name, 'bold');
      return picture;
    });
    const places = `As (row, column): ${facts.matrices.map((matrix) => held(matrix, lane)).join('; ')}.`;
    const rows = facts.matrices.filter(({ use }) => use === 'accumulator').flatMap((matrix) => rowText(matrix, lane));
    const said = `Lane ${lane} holds ${list(facts.matrices.map((m) => `${count(elementsOf(m), 'element')} of ${m.name}`))}.`;
    return { body: [...pictures, items([linesOf(facts.matrices).join(' '), places, ...rows])], said };
  };
  const chosen = slider({ name: 'lane', label: 'Lane', low: 0, high: facts.lanes - 1, value: 5 });
  const figure = frame(facts, { controls: [chosen], show });
  figure.addEventListener('click', (event) => {
    const owner = event.target.closest('[data-lane]')?.dataset.lane;
    if (owner === undefined) return;
    chosen.set(owner);
    figure.dispatchEvent(new Event('input'));
  });
  return figure;
}
