// The page of ./workbook trace --html: what a chapter's kernels did, from the facts in the page itself.
import { Picture, bytes, pageStyle } from './paint.mjs';
import { choice, h, sayContinues, shown } from './parts.mjs';
import { timeline, waits } from './timeline.mjs';

const soft = (text) => h('p', { class: 'soft' }, text);
const link = ({ lesson }) => soft(h('a', { href: encodeURI(lesson) }, 'The lesson of this chapter'));
const scrolled = (element) => sayContinues(h('div', { class: 'scroll', tabindex: 0 }, element));

/// {rows, left, legend}: the first row is the head, the first `left` columns are words.
function table({ rows: [head, ...rows], left, legend }) {
  const row = (cells, tag) => h('tr', {}, cells.map((text, i) => h(text === '' ? 'td' : tag, { class: i < left && 'word' }, text)));
  const all = h('table', {}, h('thead', {}, row(head, 'th')), h('tbody', {}, rows.map((r) => row(r, 'td'))));
  return h('div', {}, scrolled(all), legend && soft(legend));
}

const reports = (all) =>
  all.length === 0 ? [] : [h('p', {}, 'The simulator reports mistakes:'), ...all.map((text) => h('pre', { class: 'report', tabindex: 0 }, text))];

// --- Tile maps -----------------------------------------------------------------------------------------------------

const mapNames = { never: 'faint', part: 'p0', read: 'k0', masked: 'k1', mixed: 'p3' };

function cellWords([kind, text], counts) {
  if (kind === 'never') return 'never read';
  if (kind === 'part') return 'read in part';
  if (kind === 'mixed') return 'some one way, some another';
  if (kind === 'masked') return counts ? `masked, times read: ${text.slice(0, -1)}` : 'read, and masked';
  return counts ? `times read: ${text}` : 'read';
}

/// cells: [[kind, text]]; legend: [[kind, meaning]].
function drawMap({ title, row_name: rowName, column_name: columnName, rows, columns, counts, cells, legend }) {
  const longest = Math.max(...cells.flat().map(([, text]) => text.length));
  const wide = counts ? Math.max(20, 8 * longest + 8) : 14, tall = counts ? 20 : 14,
    label = rows.map((row) => `${rowName} ${row}`);
  const left = 12 + 6.6 * Math.max(...label.map((text) => text.length)), top = 20;
  const picture = new Picture(Math.max(left + columns.length * wide + 10, 300));
  columns.forEach((column, j) => j % 4 === 0 && picture.text(left + j * wide, top - 6, column, 'small soft'));
  cells.forEach((row, i) => {
    if (i % 4 === 0) picture.text(left - 6, top + i * tall + tall - 4, label[i], 'small end soft');
    row.forEach((cell, j) =>
      picture.named(`${label[i]}, ${columnName} ${columns[j]}: ${cellWords(cell, counts)}`, () => {
        picture.rect(left + j * wide, top + i * tall, wide - 1, tall - 1, mapNames[cell[0]], {
          data: `data-kind="${cell[0]}"`,
        });
        if (counts && (cell[0] === 'read' || cell[0] === 'masked'))
          picture.text(left + (j + 0.5) * wide - 0.5, top + i * tall + tall - 6, cell[1], 'small mid reversed');
      }),
    );
  });
  let x = 0;
  const y = top + cells.length * tall + 10;
  for (const [kind, meaning] of legend) {
    picture.rect(x, y, 12, 12, mapNames[kind]);
    picture.text(x + 18, y + 11, (counts && kind === 'read' ? 'a number: ' : '') + meaning, 'small');
    x += 40 + 6.6 * (meaning.length + 10);
  }
  picture.width = Math.max(picture.width, x);
  picture.height = y + 16;
  return h('figure', {}, h('figcaption', {}, title), scrolled(shown(picture, `tile map: ${title}`)));
}

// --- One row -------------------------------------------------------------------------------------------------------

const number = (value) =>
  typeof value === 'number' ? String(Number(value.toPrecision(5))).replace('-', '−') : (value ?? '');
const place = (label) => (label === 'm' ? 0 : label === 'l' ? 1 : 2);

/// What the kernel noted of a row of block 0, tile by tile, beside what it comes to. {element, mark(interval)}.
function values(noted) {
  const labels = [...new Set(noted.map(({ label }) => label))].sort((a, b) => place(a) - place(b)); // whichever thread came first
  const rows = [...new Set(noted.map(({ row }) => row))].sort((a, b) => a - b);
  const m = labels.indexOf('m'), l = labels.indexOf('l'),
    O = labels.findIndex((label) => /^O\[/.test(label)),
    shared = m >= 0 && l >= 0;
  const body = h('tbody');
  const history = (row) => {
    const at = new Map();
    for (const { label, at: values } of noted.filter((one) => one.row === row))
      for (const [interval, value] of values) at.set(interval, { ...at.get(interval), [label]: value });
    let now = {};
    return [...at]
      .sort(([a], [b]) => a - b)
      .map(([interval, changed]) => [interval, labels.map((label) => (now = { ...now, ...changed })[label])]);
  };
  let last = 0;
  const mark = (interval) => {
    last = interval;
    const now = [...body.rows].filter((row) => Number(row.dataset.interval) <= interval).at(-1);
    for (const row of body.rows) row.classList.toggle('now', row === now);
  };
  const change = () => {
    const all = history(Number(row.value)), end = all.at(-1)[1];
    body.replaceChildren(
      ...all.map(([interval, of]) => {
        const share = shared ? (of[l] * 2 ** (of[m] - end[m])) / end[l] : NaN;
        const cells = [
          interval,
          ...of.map(number),
          ...(shared ? [Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : ''] : []),
          ...(shared && O >= 0 ? [of[l] ? number(of[O] / of[l]) : ''] : []),
        ];
        return h('tr', { 'data-interval': interval }, cells.map((text) => h('td', {}, String(text))));
      }),
    );
    mark(last);
  };
  const row = choice({ name: 'row', label: 'Row', value: rows[0], change, options: rows.map((r) => [r, r]) });
  const head = ['interval', ...labels, ...(shared ? ['share of the sum'] : []), ...(shared && O >= 0 ? [`${labels[O]} / l`] : [])];
  const element = h(
    'div', { class: 'values' }, h('h3', {}, 'One row, tile by tile'),
    soft(
      'What the kernel noted of a row of block 0: m in units of log2, l and O relative to it, as registers hold them. Share of the ' +
        'sum: l beside what it comes to, both relative to the last m. The last line is the final one.',
    ),
    row.element,
    scrolled(h('table', {}, h('thead', {}, h('tr', {}, head.map((text) => h('th', { scope: 'col' }, text)))), body)),
  );
  change();
  return { element, mark };
}

// --- Time ----------------------------------------------------------------------------------------------------------

/// What block 0 has requested from device memory by the end of each interval, from {name: [read, written]} of each.
function movedSoFar(moved) {
  const sums = {};
  const text = (what, which) => {
    const parts = Object.entries(sums)
      .filter(([, both]) => both[which] > 0)
      .map(([name, both]) => `${name} ${bytes(both[which])}`);
    return parts.length === 0 ? [] : [`${what} ${parts.join(', ')}`];
  };
  return moved.map((interval) => {
    for (const [name, [read, written]] of Object.entries(interval)) {
      const [r, w] = sums[name] ?? [0, 0];
      sums[name] = [r + read, w + written];
    }
    return [...text('read', 0), ...text('written', 1)].join('; ') || 'nothing';
  });
}

function time(launch) {
  const { timeline: facts } = launch;
  if (facts.intervals === 0) return [];
  const copies = launch.flights.length > 0;
  const between = timeline({
    ...facts, kind: 'timeline', title: 'Block 0 between its barriers', now: 0, first: 0,
    count: Math.min(8, facts.intervals), moved: movedSoFar(launch.moved), waits: launch.waits,
    cut: copies ? 'a barrier, or a tile is there' : undefined,
  });
  const parts = [
    h('h3', {}, 'Block 0 between its barriers'),
    soft(
      'All warps of the block together. A red line is a barrier of the block' +
        (copies ? ', or the end of a phase: a tile has arrived' : '') +
        '. Copies by cp.async last from the interval that starts them to the one that waits for them. Shared memory: wavefronts; tensor ' +
        'cores and shuffles: instructions.',
    ),
    between,
  ];
  if (launch.values.length > 0) {
    const row = values(launch.values), slider = between.querySelector('[name=interval]');
    slider.addEventListener('input', () => row.mark(Number(slider.value)));
    parts.push(row.element);
  }
  if (launch.waits.length > 0) {
    parts.push(
      h('h3', {}, 'Who waits where'),
      soft(
        'Warps of block 0, in the order in which the simulator ran them: one of those that a GPU may take. How long a wait lasts ' +
          'there, it does not say.' +
          (copies ? ' Above: TMA copies in flight, and the barrier at which each completes.' : ''),
      ),
      waits({
        kind: 'waits', title: 'Who waits where', kernel: facts.kernel, warps: facts.warps, waits: launch.waits,
        flights: launch.flights, first: 0, count: 7,
      }),
    );
  }
  return [h('div', { class: 'time' }, parts)];
}

// --- Source lines --------------------------------------------------------------------------------------------------

const banks = 32, bankBytes = 4;

function drawAccess({ part, words, rows, bank, bytes: size, banks: firsts }) {
  const requests = Array(banks).fill(0);
  for (const first of firsts) for (let i = 0; i < Math.ceil(size / bankBytes); ++i) ++requests[(first + i) % banks];
  const cells = (of, tag, attributes = () => ({})) =>
    Array.from({ length: banks }, (_, b) => h(tag, attributes(b), of(b)));
  return [
    h('p', {}, h('b', {}, part), `, ${words}`),
    scrolled(h(
      'table', { class: 'banks' },
      h('tr', {}, h('th', { scope: 'row' }, 'bank'), cells(String, 'th', () => ({ scope: 'col' }))),
      h(
        'tr', {}, h('th', { scope: 'row' }, `${rows ? 'rows' : 'lanes'} that ask for it`),
        cells((b) => (requests[b] === 0 ? '' : String(requests[b])), 'td', (b) => ({ class: b === bank && 'hot' })),
      ),
    )),
  ];
}

function lines({ parts, legend }) {
  if (parts.length === 0) return [];
  const section = h(
    'section', { class: 'lines' }, h('h2', {}, 'By source line'), soft(`${legend.replace(/^By source line\. /, '')}.`),
    parts.flatMap((part) => [h('h3', {}, `${part.name} `, h('span', { class: 'soft' }, part.file)), table(part.table)]),
  );
  const worst = parts.flatMap((part) => part.worst.map((access) => ({ ...access, part: part.name })));
  if (worst.length === 0) {
    section.append(h('p', {}, 'No line has bank conflicts.'));
    return [section];
  }
  const shownAccess = h('div', { class: 'access', 'aria-live': 'polite' });
  const change = () => shownAccess.replaceChildren(...drawAccess(worst[Number(line.value)]));
  const line = choice({
    name: 'line', label: 'Line', value: 0, change,
    options: worst.map((access, i) => [i, `${access.part}, line ${access.line}`]),
  });
  section.append(h('h3', {}, 'Banks of the worst access'), line.element, shownAccess);
  change();
  return [section];
}

// --- The page ------------------------------------------------------------------------------------------------------

function kernel(launch) {
  return h(
    'section', {}, h('h2', {}, h('code', {}, launch.kernel)), soft(launch.shape), reports(launch.reports),
    launch.tables.map(table),
    h('dl', {}, launch.facts.flatMap(([name, text]) => [h('dt', {}, name), h('dd', {}, text)])),
    launch.drawn_maps.map((map) => [drawMap(map), map.note && soft(map.note)]), time(launch),
    h('details', {}, h('summary', {}, "Every counter, and Nsight Compute's metric"), table(launch.metrics)),
  );
}

function column({ reports: found, launches, all, lines: byLine }) {
  return [
    ...reports(found),
    ...launches.map(kernel),
    all && h('section', {}, h('h2', {}, 'All launches together'), table(all)),
    ...lines(byLine),
  ];
}

/// What two kernels ask for, in all their launches.
function sums(columns) {
  const total = (of) => columns.map(({ launches }) => launches.reduce((sum, launch) => sum + of(launch), 0));
  const moved = (which) =>
    total(({ tensors }) =>
      tensors.reduce((sum, { counters }) => sum + which.reduce((s, name) => s + (counters[name] ?? 0), 0), 0),
    ).map((size) => bytes(size));
  const counted = (...names) =>
    total(({ counters }) => names.reduce((sum, name) => sum + (counters[name] ?? 0), 0)).map(String);
  return table({
    left: 1,
    rows: [
      ['', ...columns.map(({ title }) => title)],
      ['device memory, read', ...moved(['load_bytes', 'async_bytes', 'bulk_load_bytes'])],
      ['device memory, written', ...moved(['store_bytes', 'bulk_store_bytes', 'bulk_reduce_bytes'])],
      ['wavefronts of shared memory', ...counted('shared.load_wavefronts', 'shared.store_wavefronts')],
      ['without bank conflicts', ...counted('shared.load_ideal', 'shared.store_ideal')],
      ['instructions of tensor cores', ...counted('tensor_instructions')],
      ['__syncthreads', ...counted('block_barriers')],
      ['__syncwarp', ...counted('warp_barriers')],
      ['shuffles', ...counted('shuffles')],
    ],
  });
}

/// The n-th slider of one kernel and the n-th of the other go together, each by its share of its kernel's intervals.
function tie(kernels, together) {
  const sliders = kernels.map((part) => [...part.querySelectorAll('.time [name=interval]')]);
  let following = false;
  sliders.forEach((own, c) =>
    own.forEach((slider, n) =>
      slider.addEventListener('input', () => {
        const other = sliders[1 - c][n];
        if (following || !other || !together.checked) return;
        other.value = Math.round((Number(slider.value) / Math.max(1, Number(slider.max))) * Number(other.max));
        following = true;
        other.dispatchEvent(new Event('input', { bubbles: true }));
        following = false;
      }),
    ),
  );
}

export function tracePage({ title, columns }) {
  document.head.append(h('style', {}, pageStyle()));
  const main = document.querySelector('main');
  main.append(h('h1', {}, title));
  if (columns.length === 1) {
    main.append(soft(columns[0].input), link(columns[0]), ...column(columns[0]).filter(Boolean));
    return;
  }
  document.body.classList.add('both');
  const together = h('input', { type: 'checkbox', checked: true });
  const kernels = columns.map((of) => h('div', { class: 'kernel' }, h('h2', {}, of.title), soft(of.input), link(of), column(of)));
  const label = h('label', { class: 'together' }, together, " Sliders move together, each by its share of its kernel's intervals");
  main.append(h('section', {}, h('h2', {}, 'Together'), sums(columns), label), h('div', { class: 'pair' }, kernels));
  tie(kernels, together);
}
