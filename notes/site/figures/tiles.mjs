// Which tiles of S a call computes, masks and skips, for sizes of one's choice; and whose rows a warp has.
import { edgesOf, maskCells, maskOf, sequencesOf } from './mask-map.mjs';
import { Picture, bytes, ranges, tile, width } from './paint.mjs';
import { choice, frame, h, items, screenWidth, slider } from './parts.mjs';

const names = { '#': 'computed', m: 'computed and masked', '.': 'skipped' };
const cellNames = { '#': tile(0), m: tile(1), '.': 'faint rule' };
const counted = (launch, wanted) => launch.cells.join('').split(wanted).length - 1;
const maskText = ({ mask, causal }) => mask ?? (causal ? 'causal' : 'none');

/// Where the range of keys that a query sees ends, as lines from [key, query] to [key, query], one for each sequence.
function endsOf({ queries, keys, ...given }) {
  const { left, right, lengths } = maskOf(maskText(given)), offset = keys - queries;
  return sequencesOf(keys, lengths).flatMap(([first, last]) => {
    const line = (to) => {
      const from = Math.max(lengths.length === 0 ? 0 : first, first - offset - to),
        until = Math.min(lengths.length === 0 ? queries : last, last - offset - to);
      return from < until
        ? [[[from + offset + to, from], [until + offset + to, until]]]
        : [];
    };
    return [...(right < Infinity ? line(right) : []), ...(left < Infinity ? line(-left) : [])];
  });
}

/// The tiles in a rectangle of this width, the last ones as short as they are.
function drawCells(picture, launch, facts, left, top, wide) {
  const { queries, keys } = facts, { lengths } = maskOf(maskText(facts));
  const unit = wide / Math.max(queries, keys);
  const x = (key) => left + Math.min(key, keys) * unit, y = (query) => top + Math.min(query, queries) * unit;
  const { row_tile: Br, column_tile: Bc } = launch, down = edgesOf(queries, Br, lengths),
    across = edgesOf(keys, Bc, lengths);
  launch.cells.forEach((row, i) =>
    [...row].forEach((cell, j) => {
      const [x0, y0] = [x(across[j]), y(down[i])];
      picture.rect(x0, y0, x(across[j + 1]) - x0, y(down[i + 1]) - y0, cellNames[cell], {
        data: `data-cell="${cell}"`,
      });
    }),
  );
  if (facts.row !== undefined)
    picture.rect(left, y(down[facts.row]), wide, y(down[facts.row + 1]) - y(down[facts.row]), 'none s4 wide');
  for (const line of endsOf(facts))
    picture.curve(line.map(([key, query]) => [x(key), y(query)]), 4);
  for (const [ownFirst, ownLast, from, to] of launch.loops ?? []) {
    const [own, ownRows, along, alongRows] = launch.blocks_own_keys ? [Bc, keys, Br, queries] : [Br, queries, Bc, keys];
    const middle = ((ownFirst * own + Math.min((ownLast + 1) * own, ownRows)) / 2) * unit;
    const begin = from * along * unit + 6, end = Math.min((to + 1) * along, alongRows) * unit - 6;
    if (launch.blocks_own_keys) picture.line(left + middle, top + begin, left + middle, top + end, 's3 wide');
    else picture.line(left + begin, top + middle, left + end, top + middle, 's3 wide');
  }
}

export function drawTiles(facts, space = width) {
  const picture = new Picture(space), short = space < width, { launches, queries, keys } = facts, gap = 46, left = 46,
    single = launches.length === 1, top = launches[0].kernel ? 64 : 24; // names are above
  const wide = Math.min(single ? 340 : 400, (space - left - gap * (launches.length - 1)) / launches.length),
    unit = wide / Math.max(queries, keys);
  launches.forEach((launch, n) => {
    const x0 = left + n * (wide + gap), all = launch.cells.join('').length;
    if (launch.kernel) picture.text(short ? 0 : x0, 16, launch.kernel, short ? 'small bold' : 'bold');
    if (launch.kept)
      picture.text(
        x0, 33, `thread block: ${launch.kept} rows of ${launch.blocks_own_keys ? 'K and V' : 'Q'}`, 'small soft',
      );
    picture.text(x0, top - 6, `keys, ${launch.column_tile} per tile →`, 'small soft');
    const every = Math.max(1, Math.floor(launch.cells.length / 8));
    const edges = edgesOf(queries, launch.row_tile, maskOf(maskText(facts)).lengths);
    for (let i = 0; i < launch.cells.length; i += every)
      picture.text(x0 - 6, top + edges[i] * unit + 11, edges[i], 'small end soft');
    drawCells(picture, launch, facts, x0, top, wide);
    picture.say(
      `${launch.kernel ?? 'S'}: of ${all} tiles of ${launch.row_tile} queries and ${launch.column_tile} keys, ${counted(launch, '#')} are ` +
        `computed without a mask, ${counted(launch, 'm')} are masked and ${counted(launch, '.')} skipped. `,
    );
  });
  picture.text(0, top - 6, 'query', 'small soft');
  const bottom = top + queries * unit;
  const beside = single && !short; // its words are beside the map, or below it
  let x = beside ? left + wide + 30 : short ? 0 : left, y = beside ? top + 16 : bottom + 18;
  const entry = (text, mark) => {
    mark();
    picture.text(x + 20, y + 12, text, 'small');
    if (single) y += 24;
    else x += 34 + 7 * text.length;
  };
  for (const [cell, name] of Object.entries(names)) {
    const many = counted(launches[0], cell);
    if (many > 0)
      entry(single ? `${name}: ${many} of ${launches[0].cells.join('').length}` : name, () =>
        picture.rect(x, y, 14, 14, cellNames[cell]),
      );
  }
  if (endsOf(facts).length > 0)
    entry(maskOf(maskText(facts)).left < Infinity ? 'first and last visible key' : 'last visible key', () =>
      picture.line(x, y + 7, x + 15, y + 7, 's4 wide'),
    );
  if (launches.some((launch) => launch.loops))
    entry('path of one thread block', () => picture.line(x, y + 7, x + 15, y + 7, 's3 wide'));
  const below = y + (single ? 0 : 20);
  picture.text(
    single ? x : left, below + 14, `Nq = ${queries}, Nk = ${keys}${facts.d ? `, d = ${facts.d}` : ''}`,
    'small soft',
  );
  if (single && facts.mask && facts.mask.length < 40)
    picture.text(x, below + 31, facts.mask, 'small soft');
  picture.height = Math.max(bottom, below + (single && facts.mask ? 31 : 14)) + 6;
  return picture;
}

const most = 1024;

/// What the simulator ran, launch by launch: {kernel, queries, keys, row_tile, column_tile, mask, cells}.
function launchesOf(facts) {
  return [facts, ...facts.also].flatMap(({ queries, keys, mask, launches }) =>
    launches.map((launch) => ({ queries, keys, ...launch, mask: mask ?? maskText(facts) })),
  );
}

const masks = { none: 'none', causal: 'causal', window: 'window', packed: 'packed sequences', both: 'packed and causal' };

/// Sequences of so many rows together: each has half of what is left.
function lengthsOf(rows, count) {
  const lengths = [];
  for (let left = rows; left > 0; left -= lengths.at(-1))
    lengths.push(lengths.length + 1 === count ? left : Math.ceil(left / 2));
  return lengths;
}

export function tiles(facts) {
  const calls = launchesOf(facts), backward = calls[0].blocks_own_keys;
  const sizes = [...new Set([16, 32, 64, 128, ...calls.flatMap((c) => [c.row_tile, c.column_tile])])].sort(
    (a, b) => a - b,
  );
  let whole = facts.launches.length > 1 && screenWidth() === width; // all kernels beside each other, until something is chosen
  const show = () => {
    const kind = mask.value, packed = kind === 'packed' || kind === 'both',
      lengths = packed ? `+lengths=${lengthsOf(keys.value, sequences.value)}` : '';
    // Packed sequences have as many queries as keys.
    for (const [control, has] of [[left, kind === 'window'], [right, kind === 'window'], [sequences, packed], [queries, !packed]])
      control.element.hidden = !has;
    const chosen = {
      queries: packed ? keys.value : queries.value, keys: keys.value, rowTile: Number(rowTile.value),
      columnTile: Number(columnTile.value),
      mask:
        kind === 'window'
          ? `window=${left.value},${right.value}`
          : (kind === 'causal' || kind === 'both' ? 'causal' : 'none') + lengths,
    };
    const { cells } = maskCells(chosen);
    const launch = { row_tile: chosen.rowTile, column_tile: chosen.columnTile, cells };
    const picture = whole ? drawTiles(facts) : drawTiles({ ...chosen, launches: [launch] }, screenWidth());
    whole = false;
    const all = cells.join('');
    const counts = Object.entries(names).map(([cell, name]) => `${counted(launch, cell)} ${name}`);
    // Rows of K and V that blocks of Q tiles read, or of Q and dO that blocks of K/V tiles read.
    const rowsRead = (mask) => {
      const { cells, keysRead } = maskCells({ ...chosen, mask }), edges = edgesOf(chosen.queries, chosen.rowTile, maskOf(mask).lengths);
      const read = (row, i) => row.replaceAll('.', '').length * (edges[i + 1] - edges[i]);
      return backward ? cells.map(read).reduce((a, b) => a + b) : keysRead;
    };
    const size = (mask) => bytes(rowsRead(mask) * 2 * 2 * facts.d); // of two tensors, 2 bytes an element
    const said =
      `Of ${all.length} tiles: ${counts.join(', ')}.` +
      (facts.d ? ` A head reads ${size(chosen.mask)} of ${backward ? 'Q and dO' : 'K and V'}; without a mask ${size('none')}.` : '');
    const ran = calls.find((c) => c.queries === chosen.queries && c.keys === chosen.keys && c.mask === chosen.mask &&
      c.row_tile === chosen.rowTile && c.column_tile === chosen.columnTile);
    const checked =
      ran === undefined
        ? 'By the definition of the mask; the simulator has not run this call.'
        : ran.cells.join('/') === cells.join('/')
          ? `The simulator ran this call of ${ran.kernel}: it did the same.`
          : `The simulator ran this call of ${ran.kernel}, and it did something else.`;
    return { body: [picture, h('p', { class: 'checked' }, checked)], said };
  };

  const size = (name, label, value) => slider({ name, label, low: 1, high: most, value });
  const queries = size('queries', 'Queries Nq', facts.queries), keys = size('keys', 'Keys Nk', facts.keys);
  const tileSize = (name, label, value) => choice({ name, label, options: sizes.map((s) => [s, s]), value });
  const rowTile = tileSize('row_tile', 'Br', calls[0].row_tile);
  const columnTile = tileSize('column_tile', 'Bc', calls[0].column_tile);
  const kindOf = (text) => (text.startsWith('window') ? 'window' : text), window = maskOf(maskText(facts)),
    side = (name, label, end, value) =>
      slider({ name, label, low: 0, high: most, value: end < Infinity && end > 0 ? end : value });
  const mask = choice({ name: 'mask', label: 'mask', value: kindOf(maskText(facts)), options: Object.entries(masks) });
  const left = side('left', 'keys before', window.left, 128), right = side('right', 'keys after', window.right, 0);
  const sequences = slider({ name: 'sequences', label: 'sequences', low: 2, high: 6, value: 3 });
  const ran = choice({
    name: 'ran', label: 'Calls that the simulator ran', value: 0,
    options: calls.map((c, i) => [
      i,
      `${c.kernel}: Nq = ${c.queries}, Nk = ${c.keys}, Br = ${c.row_tile}, Bc = ${c.column_tile}, ${c.mask}`,
    ]),
    change: () => {
      const call = calls[Number(ran.value)];
      queries.set(call.queries);
      keys.set(call.keys);
      rowTile.set(call.row_tile);
      columnTile.set(call.column_tile);
      mask.set(kindOf(call.mask));
      if (kindOf(call.mask) === 'window') {
        const ends = maskOf(call.mask);
        left.set(ends.left), right.set(ends.right);
      }
    },
  });
  return frame(facts, { controls: [mask, left, right, sequences, queries, keys, rowTile, columnTile, ran], show });
}

// --- Blocks: the lists of a block-sparse mask ------------------------------------------------------------------------

export function blocks(facts) {
  const rows = Math.max(...facts.launches.map(({ cells }) => cells.length));
  const show = () => {
    const launch = facts.launches[Number(mask.value)], row = [...launch.cells[q.value]];
    const listed = (cell) => ranges(row.flatMap((c, j) => (c === cell ? j : []))) || 'none';
    const words = items(Object.entries(names).map(([cell, name]) => `K/V tiles ${name}: ${listed(cell)}`));
    const read = row.filter((cell) => cell !== '.').length;
    const said = `${launch.kernel}: Q tile ${q.value} reads ${read} of ${row.length} K/V tiles.`;
    return { body: [drawTiles({ ...facts, launches: [launch], row: q.value }, screenWidth()), words], said };
  };
  const mask = choice({ name: 'mask', label: 'mask', value: 0, options: facts.launches.map(({ kernel }, i) => [i, kernel]) });
  const q = slider({ name: 'row', label: 'Q tile', low: 0, high: rows - 1, value: 1, play: true });
  return frame(facts, { controls: [mask, q], show });
}

// --- Owners ------------------------------------------------------------------------------------------------------

/// Which rows or columns of a tile each warp has.
export function drawOwners({ Br, Bc, d, warps, by_keys: byKeys, rows_per_warp: rowsPerWarp }) {
  const picture = new Picture(), gap = 52, top = 50, between = 34;
  const unit = Math.min((width - 2 * gap) / (2 * d + Bc), 400 / (Br + Math.max(Bc, d)));
  const q = d * unit, s = Bc * unit, br = Br * unit, left = (width - 2 * q - s - 2 * gap) / 2;
  const xQ = left, xS = xQ + q + gap, xO = xS + s + gap;
  const yS = top + Math.max(Bc, d) * unit + between, yK = yS - between - q, yV = yS - between - s;
  const working = byKeys ? warps : Math.min(warps, Br / rowsPerWarp),
    first = warps - working; // others are no consumers
  /// A matrix in stripes of the warps, down or across; no stripes: all warps read all of it.
  const matrix = (x, y, w, tall, stripes, down) => {
    if (stripes === 0) picture.rect(x, y, w, tall, 'faint rule');
    for (let i = 0; i < stripes; ++i) {
      const part = (down ? tall : w) / stripes, sx = down ? x : x + i * part, sy = down ? y + i * part : y;
      const [sw, sh] = down ? [w, part] : [part, tall], warp = first + (i % working);
      picture.rect(sx, sy, sw, sh, tile(i % working));
      if (sw > 14 && sh > 12) picture.text(sx + sw / 2, sy + sh / 2 + 4, warp, 'small mid');
    }
  };
  const stripes = byKeys ? warps : Br / rowsPerWarp;
  for (const [x, y, text] of [
    [xQ, yS, `Q (${Br}, ${d})`],
    [xS, yK, `Kᵀ (${d}, ${Bc})`],
    [xS, yS, `S, P (${Br}, ${Bc})`],
    [xO, yV, `V (${Bc}, ${d})`],
    [xO, yS, `O (${Br}, ${d})`],
  ])
    picture.text(x, y - 6, text, 'small');
  matrix(xQ, yS, q, br, byKeys ? 0 : stripes, true);
  matrix(xS, yK, s, q, byKeys ? stripes : 0, false);
  matrix(xS, yS, s, br, stripes, !byKeys);
  matrix(xO, yV, q, s, byKeys ? stripes : 0, true);
  if (byKeys) {
    // every warp has a part of every element of O: sheets that are added
    const sheet = 9 * (warps - 1);
    for (let w = warps - 1; w >= 0; --w) picture.rect(xO + w * 9, yS + w * 9, q - sheet, br - sheet, tile(w));
    picture.text(xO + (q - sheet) / 2, yS + br / 2 - 9, 'one partial sum per warp,', 'small mid');
    picture.text(xO + (q - sheet) / 2, yS + br / 2 + 7, 'to be added', 'small mid');
  } else {
    matrix(xO, yS, q, br, stripes, true);
  }
  const whose = byKeys
    ? [
        `Warp w has ${Bc / warps} of the tile's ${Bc} keys: columns of S and P, rows of K and V.`,
        'Each warp computes a partial sum of every element of O; the partial sums are added.',
      ]
    : [
        `A warp has ${rowsPerWarp} of the tile's ${Br} queries: rows of Q, S, P and O.` +
          (first > 0 ? ` Warps 0 to ${first - 1} are the producer and hold no rows.` : ''),
        'It needs all of K and V, and no results of other warps.',
      ];
  picture.say(`${working} warps compute. ${whose.join(' ')}`);
  picture.text(0, 16, `One thread block: ${working} warps compute, tiles of ${Br} queries and ${Bc} keys, d = ${d}`, 'bold');
  const at = whose.some((text) => 6 * text.length > width - left) ? 0 : left;
  picture.text(at, yS + br + 24, whose[0], 'small soft');
  picture.text(at, yS + br + 41, `${whose[1]} Grey: read by all warps.`, 'small soft');
  picture.height = yS + br + 52;
  return picture;
}
