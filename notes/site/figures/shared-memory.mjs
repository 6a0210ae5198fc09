// Shared memory: rows in banks behind a padding of one's choice, and the rows that ldmatrix reads.
import { choice, count, drawing, frame, h, slider, svg } from './parts.mjs';

const bankOf = (facts, address) => Math.floor(address / facts.bank_bytes) % facts.banks;

const axis = (picture, facts, left, width, every, y) => {
  for (let bank = 0; bank < facts.banks; bank += every)
    picture.append(svg('text', { x: left + (bank + every / 2) * width, y, class: 'axis' }, String(bank)));
  picture.append(svg('text', { x: 0, y, class: 'axis start' }, 'bank'));
};

export function banks(facts) {
  const left = 34, width = 20, height = 19;
  const body = h('div');
  const change = () => {
    const chosen = facts.paddings[padding.value / facts.access_bytes];
    const line = facts.banks * facts.bank_bytes, end = chosen.starts.at(-1) + facts.row_bytes + chosen.padding;
    const picture = drawing(left + facts.banks * width, 22 + Math.ceil(end / line) * height,
      `${facts.rows} rows in ${facts.banks} banks`, 560);
    axis(picture, facts, left, width, 1, 12);
    chosen.starts.forEach((start, row) => {
      for (let byte = 0; byte < facts.row_bytes + chosen.padding; byte += facts.bank_bytes) {
        const state = byte < facts.access_bytes ? 'chosen' : byte < facts.row_bytes ? 'mate' : 'padding';
        const x = left + bankOf(facts, start + byte) * width, y = 20 + Math.floor((start + byte) / line) * height;
        picture.append(svg('g', { class: `cell ${state}` }, svg('rect', { x, y, width, height }),
          byte === 0 ? svg('text', { x: x + 10, y: y + 13.5 }, String(row)) : undefined));
      }
    });
    body.replaceChildren(picture);
    const starts = chosen.starts.map((start) => bankOf(facts, start)).join(', ');
    figure.querySelector('.said').textContent =
      `The rows begin in banks ${starts}. Reading the first ${facts.access_bytes} bytes of all ${facts.rows} rows takes ` +
      `${count(chosen.wavefronts, 'wavefront')}; a row takes ${facts.row_bytes + chosen.padding} bytes.`;
  };
  const padding = slider({
    name: 'padding', label: 'Padding behind each row', low: 0, high: facts.paddings.at(-1).padding,
    step: facts.access_bytes, value: 0, text: (bytes) => `${bytes} bytes`, change,
  });
  const figure = frame(facts, { controls: [padding], body: [body] });
  change();
  return figure;
}

export function swizzle(facts) {
  const left = 50, width = 44, height = 28, groupBanks = facts.chunk_bytes / facts.bank_bytes;
  const body = h('div');
  const change = () => {
    const chosen = facts.layouts[Number(layout.value)], wanted = chunk.value;
    const picture = drawing(left + (facts.banks / groupBanks) * width, 22 + chosen.addresses.length * (height + 3),
      `${chosen.name} rows in the banks`);
    axis(picture, facts, left, width / groupBanks, groupBanks, 12);
    const used = new Map();
    chosen.addresses.forEach((row, r) => {
      const y = 20 + r * (height + 3);
      picture.append(svg('text', { x: 22, y: y + 18, class: 'axis' }, `lane ${r}`));
      row.forEach((address, c) => {
        const group = bankOf(facts, address) / groupBanks;
        if (c === wanted) used.set(group, (used.get(group) ?? 0) + 1);
        picture.append(svg('g', { class: `cell ${c === wanted ? 'chosen' : 'other'}` },
          svg('rect', { x: left + group * width, y, width, height }),
          svg('text', { x: left + (group + 0.5) * width, y: y + 18 }, String(c))));
      });
    });
    body.replaceChildren(picture);
    figure.querySelector('.said').textContent =
      `${chosen.name}: ${chosen.rule}. Chunk ${wanted} of the ${chosen.addresses.length} rows lies in ` +
      `${count(used.size, 'group')} of ${groupBanks} banks: ${count(chosen.wavefronts[wanted], 'wavefront')}. ` +
      `A row takes ${chosen.row_bytes} bytes.`;
  };
  const layout = choice({
    name: 'layout', label: 'Rows', options: facts.layouts.map((l, i) => [i, l.name]), value: 0, change,
  });
  const chunk = slider({
    name: 'chunk', label: 'Chunk that the lanes ask for', low: 0, high: facts.layouts[0].wavefronts.length - 1,
    value: facts.chunk, change,
  });
  const figure = frame(facts, { controls: [layout, chunk], body: [body] });
  change();
  return figure;
}
