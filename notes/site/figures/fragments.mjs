// Which lane holds which element: choose a lane, or touch an element.
import { count, drawing, frame, h, list, slider, svg } from './parts.mjs';

const cell = 26;

/// The lane and the number of each element: [row][column].
function ownersOf(matrix) {
  const owners = Array.from({ length: matrix.rows }, () => Array(matrix.columns));
  matrix.places.forEach((places, lane) => places.forEach(([row, column], e) => (owners[row][column] = { lane, e })));
  return owners;
}

function held(matrix, lane) {
  const registers = [];
  matrix.places[lane].forEach(([row, column], e) => {
    const register = Math.floor(e / matrix.per_register);
    (registers[register] ??= []).push(`(${row}, ${column})`);
  });
  const text = registers.map((places, r) => `${matrix.name}[${r}] = ${places.join(' and ')}`).join('; ');
  return `${matrix.name}, as (row, column): ${text}.`;
}

/// How the values of a row come together, and how its factor comes back.
function rowText(matrix, lane) {
  const mates = matrix.row_mates[lane];
  const distances = mates.map((mate) => mate ^ lane).filter((d) => d > 0 && (d & (d - 1)) === 0).sort((a, b) => a - b);
  const rows = [...new Set(matrix.places[lane].map(([row]) => row))];
  const shuffles = distances.map((d) => `__shfl_xor_sync(mask, x, ${d})`);
  const factors = rows.map((row) => `__shfl_sync(mask, factor, ${row})`);
  return [
    `Rows ${list(rows.map(String))} of ${matrix.name} are with lanes ${list(mates.map(String))} and nobody else: their ` +
      `maximum or sum is complete after ${list(shuffles)}, and then all of them have the rows' factors.`,
    `Where instead lane r keeps row r's factor, lane ${lane} gets its own by ${list(factors)}.`,
  ];
}

function draw(matrix, lane, choose) {
  const picture = drawing(matrix.columns * cell + 22, matrix.rows * cell + 20, `${matrix.name}: the lane of each element`);
  const owners = ownersOf(matrix);
  for (let column = 0; column < matrix.columns; ++column)
    picture.append(svg('text', { x: 22 + (column + 0.5) * cell, y: 12, class: 'axis' }, String(column)));
  owners.forEach((row, r) => {
    picture.append(svg('text', { x: 10, y: 20 + (r + 0.65) * cell, class: 'axis' }, String(r)));
    row.forEach((owner, c) => {
      const mate = matrix.use === 'accumulator' && matrix.row_mates[lane].includes(owner.lane);
      const state = owner.lane === lane ? 'chosen' : mate ? 'mate' : 'other';
      picture.append(
        svg('g', { class: `cell ${state}`, 'data-lane': owner.lane, onclick: () => choose(owner.lane) },
          svg('rect', { x: 22 + c * cell, y: 20 + r * cell, width: cell, height: cell }),
          svg('text', { x: 22 + (c + 0.5) * cell, y: 20 + (r + 0.66) * cell }, String(owner.lane))));
    });
  });
  return picture;
}

export function fragments(facts) {
  const body = h('div', { class: 'matrices' });
  const words = h('ul');
  const change = () => {
    const lane = chosen.value;
    const choose = (next) => {
      chosen.set(next);
      change();
    };
    body.replaceChildren(...facts.matrices.map((matrix) =>
      h('figure', { style: `flex: ${matrix.columns} 1 ${matrix.columns * 17}px; max-width: ${matrix.columns * 28 + 22}px` }, h('figcaption', {}, `${matrix.name} (${matrix.rows} × ${matrix.columns})`), draw(matrix, lane, choose))));
    const lines = facts.matrices.flatMap((matrix) =>
      matrix.use === 'accumulator' ? [held(matrix, lane), ...rowText(matrix, lane)] : [held(matrix, lane)]);
    words.replaceChildren(...lines.map((line) => h('li', {}, line)));
    figure.querySelector('.said').textContent =
      `Lane ${lane} holds ${list(facts.matrices.map((m) => `${count(m.places[lane].length, 'element')} of ${m.name}`))}.`;
  };
  const chosen = slider({ name: 'lane', label: 'Lane', low: 0, high: facts.lanes - 1, value: 5, change });
  const figure = frame(facts, { controls: [chosen], body: [body, words] });
  change();
  return figure;
}
