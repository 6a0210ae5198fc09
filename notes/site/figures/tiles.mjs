// Which tiles of S a call computes, masks and skips, for sizes of one's choice.
import { causalCells } from './causal-map.mjs';
import { choice, drawing, frame, h, slider, svg, tick } from './parts.mjs';

const side = 420, most = 1024;
const names = { '#': 'computed', m: 'computed and masked', '.': 'skipped' };
const classes = { '#': 'computed', m: 'masked', '.': 'skipped' };

/// What the simulator ran, launch by launch: {kernel, queries, keys, row_tile, column_tile, causal, cells}.
function launchesOf(facts) {
  return [facts, ...facts.also].flatMap(({ queries, keys, launches }) =>
    launches.map((launch) => ({ queries, keys, ...launch, causal: facts.causal })));
}

export function tiles(facts) {
  const calls = launchesOf(facts);
  const sizes = [...new Set([16, 32, 64, 128, ...calls.flatMap((c) => [c.row_tile, c.column_tile])])].sort((a, b) => a - b);
  const body = h('div');
  const words = h('p', { class: 'checked' });

  const draw = (cells, { queries, keys, rowTile, columnTile }) => {
    const unit = side / Math.max(queries, keys), left = 8, top = 18;
    const picture = drawing(left + keys * unit + 2, top + queries * unit + 2, 'Tiles of S: queries down, keys across');
    picture.append(svg('text', { x: left, y: 12, class: 'axis start' }, 'keys → (queries go down)'));
    cells.forEach((row, i) => [...row].forEach((cell, j) => {
      picture.append(svg('rect', {
        class: `tile ${classes[cell]}`, x: left + j * columnTile * unit, y: top + i * rowTile * unit,
        width: (Math.min((j + 1) * columnTile, keys) - j * columnTile) * unit,
        height: (Math.min((i + 1) * rowTile, queries) - i * rowTile) * unit,
      }));
    }));
    return picture;
  };

  const change = () => {
    const chosen = {
      queries: queries.value, keys: keys.value, rowTile: Number(rowTile.value), columnTile: Number(columnTile.value),
      causal: causal.value,
    };
    const cells = causalCells(chosen);
    body.replaceChildren(draw(cells, chosen));
    const all = cells.join('');
    const counts = Object.entries(names).map(([cell, name]) => `${[...all].filter((c) => c === cell).length} ${name}`);
    figure.querySelector('.said').textContent = `Of ${all.length} tiles: ${counts.join(', ')}.`;
    const ran = calls.find((c) => c.queries === chosen.queries && c.keys === chosen.keys &&
      c.row_tile === chosen.rowTile && c.column_tile === chosen.columnTile && c.causal === chosen.causal);
    words.textContent = ran === undefined ? 'By the definition of the mask; the simulator has not run this call.'
      : ran.cells.join('/') === cells.join('/') ? `The simulator ran this call of ${ran.kernel}: it did the same.`
      : `The simulator ran this call of ${ran.kernel}, and it did something else.`;
  };

  const size = (name, label, value) => slider({ name, label, low: 1, high: most, value, change });
  const queries = size('queries', 'Queries Nq', facts.queries), keys = size('keys', 'Keys Nk', facts.keys);
  const tileSize = (name, label, value) =>
    choice({ name, label, options: sizes.map((s) => [s, s]), value, change });
  const rowTile = tileSize('row_tile', 'Br', calls[0].row_tile);
  const columnTile = tileSize('column_tile', 'Bc', calls[0].column_tile);
  const causal = tick({ name: 'causal', label: 'causal', value: facts.causal, change });
  const ran = choice({
    name: 'ran', label: 'Calls that the simulator ran', value: 0,
    options: calls.map((c, i) =>
      [i, `${c.kernel}: Nq = ${c.queries}, Nk = ${c.keys}, Br = ${c.row_tile}, Bc = ${c.column_tile}`]),
    change: () => {
      const call = calls[Number(ran.value)];
      queries.set(call.queries);
      keys.set(call.keys);
      rowTile.set(call.row_tile);
      columnTile.set(call.column_tile);
      causal.set(call.causal);
      change();
    },
  });
  const legend = h('p', { class: 'legend' }, Object.entries(names).map(([cell, name]) =>
    h('span', {}, svg('svg', { viewBox: '0 0 14 14', 'aria-hidden': 'true' },
      svg('rect', { class: `tile ${classes[cell]}`, x: 0.5, y: 0.5, width: 13, height: 13 })), ` ${name}`)));
  const figure = frame(facts, { controls: [queries, keys, rowTile, columnTile, causal, ran], body: [body, legend, words] });
  change();
  return figure;
}
