// Shared memory: rows in banks behind a padding of one's choice, and the rows that ldmatrix reads.
import { Picture, count, pale, tile, width } from './paint.mjs';
import { frame, slider } from './parts.mjs';

const bankOf = (facts, address) => Math.floor(address / facts.bank_bytes) % facts.banks;

/// One padding from `top` on; returns where it ends.
function drawPadding(picture, facts, { padding, starts, wavefronts }, top) {
  const left = 28, wide = 21, tall = 19, line = facts.banks * facts.bank_bytes, stride = facts.row_bytes + padding;
  const title =
    padding === 0
      ? `Rows of ${facts.row_bytes} bytes, contiguous`
      : `The same rows, ${padding} bytes of padding after each`;
  const result = `${facts.access_bytes} bytes of ${facts.rows} rows: ${count(wavefronts, 'wavefront')}`;
  picture.say(`${title}: ${result}. `);
  picture.text(left, top + 14, title, 'bold');
  picture.text(width, top + 14, result, `k${wavefronts > 1 ? 4 : 2} end bold`);
  for (let bank = 0; bank < facts.banks; ++bank) picture.text(left + (bank + 0.5) * wide, top + 31, bank, 'tiny mid');
  picture.text(0, top + 31, 'bank', 'tiny soft');
  const grid = top + 36, place = (byte) => [left + bankOf(facts, byte) * wide, grid + Math.floor(byte / line) * tall];
  for (let byte = 0; byte < facts.rows * stride; byte += facts.bank_bytes) {
    const column = byte % stride, row = Math.floor(byte / stride);
    const names = column < facts.access_bytes ? tile(row) : column < facts.row_bytes ? pale(row) : 'none rule';
    picture.rect(...place(byte), wide, tall, names);
  }
  starts.forEach((start, row) => {
    const [x, y] = place(start);
    picture.text(x + 3, y + 14, `row ${row}`, 'small');
  });
  return grid + Math.ceil((facts.rows * stride) / line) * tall;
}

export function drawBanks(facts, { paddings = facts.shown } = {}) {
  const picture = new Picture();
  let top = 4;
  for (const padding of paddings)
    top =
      drawPadding(picture, facts, facts.paddings.find((p) => p.padding === padding), top) + 22;
  picture.text(
    28,
    top,
    `One line is ${facts.banks * facts.bank_bytes} bytes, once through all ${facts.banks} banks of ${facts.bank_bytes} bytes. ` +
      `Outlined in colour: the first ${facts.access_bytes} bytes of each row.`,
    'small soft',
  );
  picture.text(28, top + 17, 'Empty: padding, never accessed. A bank serves one line at a time.', 'small soft');
  picture.height = top + 26;
  return picture;
}

export function banks(facts) {
  const show = () => {
    const chosen = facts.paddings[padding.value / facts.access_bytes];
    const both = chosen.padding === 0 ? [0] : [0, chosen.padding];
    const said =
      `The rows begin in banks ${chosen.starts.map((start) => bankOf(facts, start)).join(', ')}. Reading the first ` +
      `${facts.access_bytes} bytes of all ${facts.rows} rows takes ${count(chosen.wavefronts, 'wavefront')}; a row takes ` +
      `${facts.row_bytes + chosen.padding} bytes.`;
    return { body: [drawBanks(facts, { paddings: both })], said };
  };
  const padding = slider({
    name: 'padding', label: 'Padding after each row', low: 0, high: facts.paddings.at(-1).padding,
    step: facts.access_bytes, value: facts.shown.at(-1), text: (bytes) => `${bytes} bytes`,
  });
  return frame(facts, { controls: [padding], show });
}

export function drawSwizzle(facts, { chunk = facts.chunk } = {}) {
  const left = 44, cell = 25, gap = 17, top = 58, groups = (facts.banks * facts.bank_bytes) / facts.chunk_bytes;
  const picture = new Picture(), rows = facts.layouts[0].addresses.length, bottom = top + rows * (cell + 2);
  let x0 = left;
  for (const layout of facts.layouts) {
    picture.text(x0, 14, layout.name, 'bold');
    picture.text(x0, 31, layout.rule, 'small soft');
    for (let group = 0; group < groups; ++group)
      picture.text(x0 + (group + 0.5) * cell, 50, (group * facts.chunk_bytes) / facts.bank_bytes, 'tiny mid');
    layout.addresses.forEach((addresses, row) =>
      addresses.forEach((address, c) => {
        const x = x0 + ((bankOf(facts, address) * facts.bank_bytes) / facts.chunk_bytes) * cell,
          y = top + row * (cell + 2);
        picture.rect(x, y, cell, cell, c === chunk ? tile(row) : 'faint', { data: `data-chunk="${c}"` });
        picture.text(x + cell / 2, y + 17, c, c === chunk ? 'small mid bold' : 'small mid soft');
      }),
    );
    const taken = count(layout.wavefronts[chunk], 'wavefront'), size = `${layout.row_bytes} bytes per row`;
    picture.text(x0, bottom + 16, taken, `k${layout.wavefronts[chunk] > 1 ? 4 : 2} bold`);
    picture.text(x0, bottom + 33, size, 'small');
    picture.say(`${layout.name}: ${taken}, ${size}. `);
    x0 += groups * cell + gap;
  }
  picture.text(0, 50, 'bank', 'tiny soft');
  for (let row = 0; row < rows; ++row) picture.text(0, top + row * (cell + 2) + 17, `lane ${row}`, 'small soft');
  picture.text(
    left, bottom + 58,
    `ldmatrix: lanes 0 to 7 name chunk ${chunk} of rows 0 to 7, 16 bytes each. A column of cells is four banks.`,
    'small soft',
  );
  picture.height = bottom + 67;
  return picture;
}

export function swizzle(facts) {
  const show = () => {
    const wanted = chunk.value, groupBanks = facts.chunk_bytes / facts.bank_bytes;
    const said = facts.layouts
      .map((layout) => {
        const used = new Set(layout.addresses.map((row) => Math.floor(bankOf(facts, row[wanted]) / groupBanks)));
        return (
          `${layout.name}: chunk ${wanted} of the ${layout.addresses.length} rows is in ${count(used.size, 'group')} of ` +
          `${groupBanks} banks: ${count(layout.wavefronts[wanted], 'wavefront')}.`
        );
      })
      .join(' ');
    return { body: [drawSwizzle(facts, { chunk: wanted })], said };
  };
  const chunk = slider({
    name: 'chunk', label: 'Chunk that the lanes ask for', low: 0, high: facts.layouts[0].wavefronts.length - 1,
    value: facts.chunk,
  });
  return frame(facts, { controls: [chunk], show });
}
