// Rows of the Q tiles of a group of heads, not packed and packed.
import { Picture, bytes, count, digits, width } from './paint.mjs';
import { frame, slider } from './parts.mjs';

/// For each Q tile of a group, the heads of its rows; row r of the packed rows is of head r % heads.
export function tilesOf({ heads, Br }, queries, packed) {
  const rows = packed
    ? [Array.from({ length: heads * queries }, (_, r) => r % heads)]
    : Array.from({ length: heads }, (_, head) => Array(queries).fill(head));
  return rows.flatMap((all) => Array.from({ length: Math.ceil(all.length / Br) }, (_, t) => all.slice(t * Br, (t + 1) * Br)));
}

const runOf = (facts) => facts.runs.findIndex(({ queries }) => queries === facts.queries);

export function drawPacking(facts, { at = runOf(facts) } = {}) {
  const picture = new Picture(), { heads, Br } = facts, { queries, bytes: moved } = facts.runs[at];
  let bottom = 0;
  const row = 2, label = 66, step = 26, top = 50;
  [false, true].forEach((packed, n) => {
    const tiles = tilesOf(facts, queries, packed), left = n * (width - label - Br * row);
    const blocks = `${packed ? 'packed' : 'not packed'}: ${count(tiles.length, 'thread block')}`, read = `K and V: ${bytes(moved[n])} requested`;
    picture.text(left, 16, blocks, 'bold');
    picture.text(left, 36, read, 'small soft');
    picture.say(`Nq = ${queries}, ${blocks}. ${read}. `);
    tiles.forEach((tile, t) => {
      const x = left + label, y = top + t * step, together = packed ? 1 : tile.length; // rows of one head
      bottom = Math.max(bottom, y + step);
      picture.text(left, y + 14, packed ? 'all heads' : `head ${tile[0]}`, 'small');
      picture.rect(x, y, Br * row, 18, 'faint rule thin');
      for (let r = 0; r < tile.length; r += together)
        picture.rect(x + r * row, y, together * row, 18, `k${tile[r]}`, { data: `data-rows="${together}"` });
    });
  });
  picture.height = bottom + 20;
  picture.text(0, picture.height - 6, `Nq = ${queries}, G = ${heads}. A bar is a Q tile of ${Br} rows; colours are the heads of its rows, grey rows do not exist.`, 'small soft');
  return picture;
}

export function packing(facts) {
  const show = () => {
    const { queries, blocks, bytes: moved, packs } = facts.runs[at.value];
    const full = blocks.map((many) => `${digits((100 * facts.heads * queries) / (facts.Br * many), 3)} %`);
    const said =
      `Nq = ${queries}, G = ${facts.heads}, Nk = ${facts.keys}: ${count(blocks[0], 'thread block')} not packed, ${blocks[1]} packed. ` +
      `Fill ratio: ${full.join(' and ')}. K and V: ${moved.map((all) => bytes(all)).join(' and ')}. The rule ${packs ? 'packs' : 'does not pack'}.`;
    return { body: [drawPacking(facts, { at: at.value })], said };
  };
  const at = slider({
    name: 'queries', label: 'Queries Nq', low: 0, high: facts.runs.length - 1, value: runOf(facts), text: (i) => String(facts.runs[i].queries),
    play: true,
  });
  return frame(facts, { controls: [at], show });
}
