// The tests of the pages. Without a browser: the arithmetic of a figure against what the simulator ran, links, what is
// left out, what is loaded. In Chromium, from the folder as it is (file:): every page, every figure against its facts.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { cpus } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import MarkdownIt from 'markdown-it';
import MiniSearch from 'minisearch';
import { chromium } from 'playwright-core';
import { draws, figures } from './figures/kinds.mjs';
import { edgesOf, maskCells } from './figures/mask-map.mjs';
import { tilesOf } from './figures/packing.mjs';
import { bytes, ranges } from './figures/paint.mjs';
import { readResults } from './figures/results.mjs';
import { waitsOf } from './figures/timeline.mjs';
import { withIndices } from './markdown.mjs';
import { slugOf, withAddress } from './pages.mjs';
import { excerpt, find, marked, options } from './search.mjs';

const programs = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome', '/snap/bin/chromium'];

class Tests {
  passed = 0;
  failed = 0;
  skipped = 0;
  /// Runs one test; what it throws is its failure.
  async run(name, body) {
    try {
      await body();
      ++this.passed;
      console.log(`ok ${name}`);
    } catch (error) {
      ++this.failed;
      console.log(`not ok ${name}: ${String(error.message).replace(/\s*\n\s*/g, ' | ').slice(0, 1500)}`);
    }
  }
  skip(name) {
    ++this.skipped;
    console.log(`skipped: ${name}`);
  }
}

function expect(holds, message) {
  if (!holds) throw new Error(message);
}
const expectEqual = (actual, expected, what) =>
  expect(JSON.stringify(actual) === JSON.stringify(expected),
    `${what}: ${JSON.stringify(actual)} instead of ${JSON.stringify(expected)}`);

/// All facts of the book: {file, facts}.
function allFacts(root) {
  return readdirSync(join(root, 'chapters')).flatMap((chapter) => {
    const folder = join(root, 'chapters', chapter, 'pictures');
    if (!existsSync(folder)) return [];
    return readdirSync(folder)
      .filter((name) => name.endsWith('.json'))
      .map((name) => ({ file: `${chapter}/${name}`, facts: JSON.parse(readFileSync(join(folder, name), 'utf8')) }));
  });
}

// --- Without a browser --------------------------------------------------------------------------------------------

function testMap(facts) {
  let calls = 0;
  for (const { file, facts: map } of facts.filter(({ facts: { kind } }) => kind === 'tiles')) {
    for (const call of [map, ...map.also]) {
      for (const launch of call.launches) {
        const sizes = { queries: call.queries, keys: call.keys, rowTile: launch.row_tile, columnTile: launch.column_tile };
        const mask = call.mask ?? map.mask ?? (map.causal ? 'causal' : 'none');
        expectEqual(maskCells({ ...sizes, mask }).cells, launch.cells, `${file}, ${launch.kernel}, ${mask}, ${JSON.stringify(sizes)}`);
        ++calls;
      }
    }
  }
  expect(calls >= 10, `only ${calls} calls to compare with`);
  // Packed sequences: each has the tiles that it has alone, and none with another.
  expectEqual(edgesOf(100, 32, [40, 60]), [0, 32, 40, 72, 100], 'tiles of packed sequences');
  const packed = { queries: 100, keys: 100, rowTile: 32, columnTile: 32 };
  expectEqual(maskCells({ ...packed, mask: 'none+lengths=40,60' }), { cells: ['#m..', '#m..', '..#m', '..#m'], keysRead: 200 }, 'packed');
  expectEqual(maskCells({ ...packed, mask: 'causal+lengths=40,60' }), { cells: ['m...', '#m..', '..m.', '..#m'], keysRead: 164 }, 'packed, causal');
  // The lesson's: ten tiles of 64 keys for 128 queries within a window of 512, four of them masked.
  expectEqual(maskCells({ queries: 128, keys: 768, rowTile: 128, columnTile: 64, mask: 'window=512,0' }), { cells: ['..mm######mm'], keysRead: 640 }, 'a window of 512');
}

/// The tiles that are drawn are the simulator's thread blocks, and the rule of exercise 14.6 is FlashAttention-3's.
function testPacking(facts) {
  for (const { facts: group } of facts.filter(({ facts: { kind } }) => kind === 'packing')) {
    const fill = (rows) => rows / (group.Br * Math.ceil(rows / group.Br));
    for (const { queries, blocks, packs } of group.runs) {
      expectEqual([false, true].map((packed) => tilesOf(group, queries, packed).length), blocks, `Q tiles with Nq = ${queries}`);
      expectEqual(packs, fill(queries) < 0.9 * fill(group.heads * queries), `the rule with Nq = ${queries}`);
    }
    expectEqual(tilesOf(group, 2, true)[0], [0, 1, 2, 3, 0, 1, 2, 3], 'packed query by query');
  }
}

function testIndices() {
  for (const [text, html] of [
    ['P_jᵀ dO_j', 'P<sub>j</sub>ᵀ dO<sub>j</sub>'],
    ['dS_ij = P_ij (dP_ij - D_i)', 'dS<sub>ij</sub> = P<sub>ij</sub> (dP<sub>ij</sub> - D<sub>i</sub>)'],
    ['|Σ_before P_j²|, δO_c, m_safe, m_{t+1}', '|Σ<sub>before</sub> P<sub>j</sub>²|, δO<sub>c</sub>, m<sub>safe</sub>, m<sub>t+1</sub>'],
    ['2^(S − m), 2^−11 and e^x', '2<sup>S − m</sup>, 2<sup>−11</sup> and e<sup>x</sup>'],
    ...['sm_90', 'K_full[1]', 'log_softmax', 'dQ_sum.hpp', '07_mixed_precision', 'QK^T'].map((name) => [name, name]),
  ])
    expectEqual(withIndices(text), html, text);
}

function testAddress() {
  const text = 'See. `REPOSITORY` is this\nrepository. git clone REPOSITORY', cloned = (address) => `See. git clone ${address}`;
  expectEqual(withAddress(text, {}, 'git@host:a/b'), text, 'no address');
  expectEqual(withAddress(text, {}, 'https://me:secret@host/a/b\n'), cloned('https://host/a/b'), 'the address of the clone');
  expectEqual(withAddress(text, { GITHUB_SERVER_URL: 'https://g', GITHUB_REPOSITORY: 'a/b' }, ''), cloned('https://g/a/b'), 'the published one');
}

/// The start page: the algorithm, the book's kernels beside others, how to begin, and for whom.
function testStart(out) {
  const html = readFileSync(join(out, 'index.html'), 'utf8'), [, facts] = /data-figure="plot"[^>]*>([^<]*)</.exec(html);
  const curves = JSON.parse(facts).panels.flatMap((panel) => panel.curves.map(({ title }) => title)).join();
  for (const name of ['chapter 1:', 'chapter 3:', 'chapter 4:', 'chapter 8:', 'chapter 11:', 'FlashAttention-2', 'FlashAttention-3', 'cuDNN'])
    expect(curves.includes(name), `the plot has no ${name}: ${curves}`);
  for (const part of ['data-figure="algorithm"', '>git ', 'a student', 'an instructor', 'a GPU engineer'])
    expect(html.split('id="chapters"')[0].includes(part), `before the chapters there is no ${part}`);
}

function testResults() {
  const facts = { section: 'forward, d = 64, N = 8192' };
  const point = { kind: 'stage', pass: 'forward', name: 'mine', d: 64, N: 512, causal: false, tflops: 100, gigabytes_per_second: 500 };
  expectEqual(readResults({ points: [point, { ...point, gigabytes_per_second: null }, { ...point, pass: 'backward' }] }, facts),
    [{ name: 'mine, d = 64, N = 512', flop_per_byte: 200, tflops: 100 }], 'results');
  for (const wrong of [null, {}, { points: [] }, { points: [{ ...point, kind: 'peer' }] }]) {
    let message = '';
    try {
      readResults(wrong, facts);
    } catch (error) {
      message = error.message;
    }
    expect(/no points|no forward stage/.test(message), `${JSON.stringify(wrong)} is taken: ${message}`);
  }
}

/// In the legends of a plot, each series has a colour and a shape that no other one has together.
function testLooks(svg, file) {
  const looks = new Map();
  for (const [, shape, names, at, title] of svg.matchAll(/<(circle|polygon) class="([^"]*)"([^>]*)\/>\n<text class="k\d small"[^>]*>([^<]*)/g)) {
    const corners = shape === 'circle' ? [] : at.match(/[\d.]+/g).map((value, i, [x, y]) => Math.round(value - [x, y][i % 2]));
    looks.set(title, [names, ...corners].join());
  }
  expect(looks.size > 0 && new Set(looks.values()).size === looks.size, `${file}: series look alike: ${[...looks].join('; ')}`);
}

/// The committed pictures are what the modules draw of the committed facts.
function testPictures(root) {
  let pictures = 0;
  const folders = [...readdirSync(join(root, 'chapters')).map((chapter) => join(root, 'chapters', chapter, 'pictures')), join(root, 'notes/figures')];
  for (const folder of folders.filter((f) => existsSync(f))) {
    for (const name of readdirSync(folder).filter((file) => file.endsWith('.svg'))) {
      const facts = JSON.parse(readFileSync(join(folder, name.replace(/svg$/, 'json')), 'utf8'));
      expect(draws[facts.kind](facts).file(facts.title) === readFileSync(join(folder, name), 'utf8'), `${folder}/${name} is not what its facts say`);
      if (/plot|roofline/.test(facts.kind)) testLooks(readFileSync(join(folder, name), 'utf8'), name);
      ++pictures;
    }
  }
  expect(pictures >= 25, `only ${pictures} pictures`);
}

function testWaits() {
  // Warp 2 copies twice, to a place that it has to wait for; warps 0 and 1 wait for both copies, warp 3 for one.
  const wait = (warp, what, begin, end) => ({ warp, what: `${what}, phase 0 (parity 0): 0 of 8 bytes`, begin, end });
  const facts = {
    flights: [{ what: 'K 0', barrier: 'full[0]', begin: 0, end: 3 }, { what: 'K 1', barrier: 'full[0]', begin: 5, end: 7 }],
    waits: [wait(0, 'full[0]', 0, 3), wait(1, 'full[0]', 1, 3), wait(2, 'empty[0]', 2, 5), wait(0, 'full[0]', 3, 7), wait(1, 'full[0]', 4, 7), wait(3, 'full[0]', 5, 7)],
  };
  const text = (first, count) => waitsOf(facts, first, count).rows.map(({ name, bars }) =>
    `${name}:${bars.map((bar) => ` ${bar.text}${bar.before ? '<' : ' '}${bar.first}-${bar.last}`).join('')}`);
  expectEqual(waitsOf(facts, 0, 100).steps, 4, 'steps: the ends are 3, 5 and 7');
  expectEqual(text(0, 100), ['copies, full[0]: K 0 0-1 K 1 2-3', 'warps 0-1: full[0] 0-1 full[0] 1-3', 'warp 2: empty[0] 0-2', 'warp 3: full[0] 2-3'], 'all steps');
  // In the last steps alone, warps 0, 1 and 3 still differ: two of them wait already.
  expectEqual(text(2, 1), ['copies, full[0]: K 1 2-3', 'warps 0-1: full[0]<2-3', 'warp 3: full[0] 2-3'], 'one step');
  expectEqual(ranges([0, 1, 2, 5, 7, 8]), '0-2, 5, 7-8', 'numbers');
}

/// As many blocks of code in a page as its text has, and no drawing among them.
function testCode(root, out, pages) {
  for (const { url, path } of pages.filter((page) => page.path.endsWith('.md') && existsSync(join(root, page.path)))) {
    const blocks = new MarkdownIt().parse(readFileSync(join(root, path), 'utf8'), {}).filter(({ type }) => /^fence|^code_block/.test(type));
    const html = readFileSync(join(out, url), 'utf8');
    expectEqual(html.split('<pre ').length - 1, blocks.length, `${url}: blocks of code`);
    if (path.startsWith('chapters/')) expect(!/<pre[^>]*><code>[^<]*[┌└├▶◀▲▼■]/.test(html), `${url}: a drawing of characters; pictures.toml has the kind diagram`);
  }
}

const attributes = (html, name) => [...html.matchAll(new RegExp(`\\s${name}="([^"]*)"`, 'g'))].map((match) => match[1]);

function testLinks(out, pages) {
  const ids = new Map();
  const idsOf = (file) => {
    if (!ids.has(file)) ids.set(file, new Set(attributes(readFileSync(file, 'utf8'), 'id')));
    return ids.get(file);
  };
  const wrong = [];
  for (const { url } of pages) {
    const from = join(out, url), html = readFileSync(from, 'utf8').replace(/<script[^>]*json[^]*?<\/script>/g, '');
    for (const target of ['href', 'src', 'srcset'].flatMap((name) => attributes(html, name))) {
      if (/^(https?|data):/.test(target)) continue;
      const [path, anchor] = target.split('#');
      const file = path === '' ? from : resolve(dirname(from), decodeURIComponent(path));
      if (!existsSync(file)) wrong.push(`${url}: ${target}`);
      else if (anchor && !idsOf(file).has(decodeURIComponent(anchor))) wrong.push(`${url}: ${target}: no such place`);
    }
  }
  expect(wrong.length === 0, wrong.join('\n'));
}

/// A heading's anchor and a part of the page by the same name would be taken for each other.
function testIds(out, pages) {
  for (const { url } of pages) {
    const ids = attributes(readFileSync(join(out, url), 'utf8').replace(/<script[^>]*json[^]*?<\/script>/g, ''), 'id');
    const twice = ids.filter((id, i) => ids.indexOf(id) !== i);
    expect(twice.length === 0, `${url} has twice: ${twice.join(', ')}`);
  }
}

function testNothingLoaded(out, pages) {
  for (const { url } of pages) {
    const html = readFileSync(join(out, url), 'utf8');
    const loaded = [...html.matchAll(/<(?:script|link|img|iframe|source)\b[^>]*\s(?:src|href)="([^"]*)"/g)].map((m) => m[1]);
    for (const target of loaded) expect(!/^(\w+:)?\/\//.test(target), `${url} loads ${target}`);
  }
  for (const name of readdirSync(join(out, 'assets'))) {
    if (!name.endsWith('.css')) continue;
    const rules = readFileSync(join(out, 'assets', name), 'utf8').replace(/url\(fonts\//g, ''); // the site's own fonts
    expect(!/url\(|@import/.test(rules), `${name} loads something`);
  }
}

/// The lines of answers that stand nowhere in the stubs, long enough to be nobody else's.
function answerLines(root) {
  const given = new Set(), answers = new Map();
  for (const [tree, take] of [['chapters', given], ['solutions', answers]]) {
    for (const chapter of readdirSync(join(root, tree))) {
      const folder = join(root, tree, chapter);
      if (!existsSync(join(folder)) || chapter.includes('.')) continue;
      for (const name of readdirSync(folder).filter((file) => /\.(cpp|hpp|cuh?)$/.test(file))) {
        let open = false;
        for (const line of readFileSync(join(folder, name), 'utf8').split('\n').map((text) => text.trim())) {
          if (/^\/\/ (BEGIN|END) /.test(line)) open = line.startsWith('// BEGIN');
          else if (take === given) given.add(line);
          else if (open && line.length > 50 && !line.startsWith('//')) answers.set(line, `${chapter}/${name}`);
        }
      }
    }
  }
  for (const line of given) answers.delete(line);
  return answers;
}

function testAnswers(root, out, pages) {
  const answers = answerLines(root);
  expect(answers.size > 100, `only ${answers.size} lines of answers were found`);
  const plain = (html) =>
    html.replace(/<[^>]*>/g, '').replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&quot;', '"').replaceAll('&amp;', '&');
  for (const { url, group } of pages) {
    expect(group !== 'solutions', `${url} is a solution`);
    const lines = new Set(plain(readFileSync(join(out, url), 'utf8')).split('\n').map((line) => line.trim()));
    for (const [line, where] of answers) expect(!lines.has(line), `${url} shows a line of ${where}: ${line}`);
  }
}

// --- In Chromium --------------------------------------------------------------------------------------------------

const widths = [360, 768, 1280, 1600];

/// Runs in the page: pictures that are shown smaller than they are drawn, and texts of figures that are too small.
const smallTexts = () => [
  ...[...document.querySelectorAll('.drawn img')].filter((img) => img.checkVisibility() && img.clientWidth < img.naturalWidth - 1).map((img) => img.src),
  ...[...document.querySelectorAll('main svg text')].filter((text) => {
    const svg = text.ownerSVGElement;
    return Number.parseFloat(getComputedStyle(text).fontSize) * svg.clientWidth < 9.99 * svg.viewBox.baseVal.width;
  }).map((text) => text.textContent),
];
/// Runs in a picture or a page: texts that the edge cuts, and texts that are wider than the shape that they are in.
const cutTexts = () => [...document.querySelectorAll(document.body ? 'main svg.picture' : 'svg')].filter((svg) => svg.checkVisibility()).flatMap((svg) => {
  const shapes = [...svg.querySelectorAll('rect:not(.page)')].map((rect) => ({ box: rect.getBBox(), names: rect.getAttribute('class') }));
  const at = (x, y) => shapes.filter(({ box }) => box.x - 1 <= x && x <= box.x + box.width + 1 && box.y <= y && y <= box.y + box.height);
  const area = ({ box }) => box.width * box.height, { x: left, width } = svg.viewBox.baseVal;
  return [...svg.querySelectorAll('text')].filter((text) => {
    const { x, y, width: wide, height } = text.getBBox(), middle = y + height / 2;
    const shape = at(x + wide / 2, middle).reduce((top, next) => (top && area(top) < area(next) ? top : next), undefined);
    const inside = (end) => !shape || at(end, middle).some(({ names }) => names === shape.names);
    return x < left || x + wide > left + width || !inside(x) || !inside(x + wide);
  }).map((text) => text.textContent);
});
/// Runs in a page: what continues to the right and does not say so.
const silentlyCut = () => [...document.querySelectorAll('.scroll, .drawn, .formula, .touch .body, main pre')].filter((element) =>
  element.checkVisibility() && element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element, '::before').content === 'none').map(({ textContent }) => textContent.slice(0, 60));
/// Runs in a page: figures that are higher than what the head of the page leaves of a small screen; plots may be.
const tooHigh = () => [...document.querySelectorAll('.touch:not([data-kind=plot])')].filter(({ clientHeight }) => clientHeight > 752).map(({ ariaLabel }) => ariaLabel);
/// Runs in a page with code: wrapped lines of which a part is left of the first one.
const notIndented = () => [...document.querySelectorAll('.line')].filter((line) => {
  const range = document.createRange();
  range.selectNodeContents(line);
  const [first, ...others] = line.clientHeight > 30 ? range.getClientRects() : [];
  return others.some(({ left, width }) => width > 0 && left < first.left);
}).map(({ id }) => id);

/// Opens the page; what it logs, throws or asks of the network is a failure.
class Reader {
  constructor(browser, out) {
    this.browser = browser;
    this.out = out;
  }
  async start() {
    const context = await this.browser.newContext({ viewport: { width: 1600, height: 900 } });
    this.page = await context.newPage();
    this.heard = [];
    this.page.on('console', (message) => this.heard.push(`console: ${message.text()}`));
    this.page.on('pageerror', (error) => this.heard.push(`error: ${error.message}`));
    const inside = pathToFileURL(this.out).href;
    this.page.on('request', (request) => {
      const url = request.url();
      if (!url.startsWith(`${inside}/`) && !url.startsWith('data:')) this.heard.push(`request: ${url}`);
    });
    this.page.on('requestfailed', (request) => this.heard.push(`failed: ${request.url()}`));
  }
  async open(url) {
    this.heard = [];
    await this.page.goto(pathToFileURL(join(this.out, url)).href);
    this.quiet();
  }
  quiet() { expect(this.heard.length === 0, this.heard.join('; ')); }
  /// Nothing is cut: 120 columns of code at 1280 pixels, and no page is wider than the screen.
  async fits(url) {
    for (const width of widths) {
      await this.page.setViewportSize({ width, height: 900 });
      // Two frames: the notices of what continues are set after the first layout.
      await this.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      const taken = await this.page.evaluate(() => document.documentElement.scrollWidth);
      expect(taken <= width, `${url} is ${taken} pixels wide on a screen of ${width}`);
      const narrow = [[smallTexts, 'texts below 10 pixels'], [cutTexts, 'cut texts'], [notIndented, 'lines not indented'], [silentlyCut, 'silently cut']];
      for (const [test, what] of width === 360 ? narrow : width === 1280 ? [[tooHigh, 'too high']] : [])
        expectEqual(await this.page.evaluate(test), [], `${url}, ${what}`);
      if (width < 1280) continue;
      const cut = await this.page.locator('main pre').evaluateAll((all) => all.filter((pre) => pre.scrollWidth > pre.clientWidth)
        .map((pre) => `${pre.scrollWidth} > ${pre.clientWidth}: ${pre.textContent.split('\n').sort((a, b) => b.length - a.length)[0]}`));
      expect(cut.length === 0, `code is cut at ${width}: ${cut.join('; ')}`);
    }
  }
  async accessible(url, axe) {
    await this.page.evaluate(axe);
    const problems = await this.page.evaluate(async () => {
      const found = await window.axe.run(document, { preload: false, runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice'] });
      return found.violations
        .filter((v) => v.impact === 'serious' || v.impact === 'critical')
        .map((v) => `${v.id}: ${v.nodes.length} x ${v.nodes[0].html.slice(0, 120)} ${v.nodes[0].failureSummary.slice(0, 200)}`);
    });
    expect(problems.length === 0, `${url}: ${problems.join('; ')}`);
  }
}

/// Sets a control of a figure as a reader does, by its events.
async function set(figure, name, value) {
  await figure.locator(`[name="${name}"]`).evaluate((control, to) => {
    control.value = to;
    control.dispatchEvent(new Event(control.type === 'range' ? 'input' : 'change', { bubbles: true }));
  }, value);
}
const said = (figure) => figure.locator('.said').textContent();
const many = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;

/// One function a kind: the figure shows its facts, whatever is chosen.
const figureTests = {
  async fragments(figure, facts) {
    for (const lane of [0, 5, 18, 31]) {
      await set(figure, 'lane', lane);
      const cells = await figure.locator('rect[data-lane]').evaluateAll((all) =>
        all.map((cell) => ({ chosen: cell.classList.contains('chosen'), lane: Number(cell.dataset.lane), place: cell.dataset.place })));
      let taken = 0;
      for (const matrix of facts.matrices) {
        const drawn = cells.slice(taken, (taken += matrix.rows * matrix.columns));
        const chosen = drawn.filter((cell) => cell.chosen).map((cell) => cell.place.split(',').map(Number));
        const order = ([a, b], [c, d]) => a - c || b - d;
        expectEqual(chosen.sort(order), [...matrix.places[lane]].sort(order), `lane ${lane} of ${matrix.name}`);
        const owner = Object.fromEntries(drawn.map((cell) => [cell.place, cell.lane]));
        matrix.places.forEach((of, l) => of.forEach(([r, c]) =>
          expect(owner[`${r},${c}`] === l, `(${r}, ${c}) of ${matrix.name} is not with lane ${l}`)));
        const text = await figure.locator('ul').textContent();
        expect(text.includes(`${matrix.name}[0] = (${matrix.places[lane][0].join(', ')})`), `lane ${lane}: ${text}`);
        if (matrix.use === 'accumulator') {
          const mates = matrix.row_mates[lane];
          expect(text.includes(`lanes ${mates.slice(0, -1).join(', ')} and ${mates.at(-1)}`), `row mates of ${lane}: ${text}`);
          expect(text.includes(`__shfl_sync(mask, factor, ${matrix.places[lane][0][0]})`), `factor of ${lane}: ${text}`);
        }
      }
    }
    await figure.locator('rect[data-lane="9"]').first().click();
    expect((await said(figure)).startsWith('Lane 9 holds'), 'a click on an element chooses its lane');
  },
  async banks(figure, facts) {
    for (const { padding, wavefronts, starts } of facts.paddings) {
      await set(figure, 'padding', padding);
      const text = await said(figure);
      expect(text.includes(`takes ${many(wavefronts, 'wavefront')};`), `${padding} bytes: ${text}`);
      expect(text.includes(`banks ${starts.map((s) => (s / facts.bank_bytes) % facts.banks).join(', ')}.`), `${padding} bytes: ${text}`);
    }
  },
  async swizzle(figure, facts) {
    for (const chunk of facts.layouts[0].wavefronts.keys()) {
      await set(figure, 'chunk', chunk);
      const text = await said(figure);
      const marked = await figure.locator(`rect[data-chunk="${chunk}"]`).evaluateAll((all) => all.map((rect) => [rect.getAttribute('x'), rect.classList.length]));
      expect(marked.every(([, names]) => names === 2), 'they have an edge');
      for (const [l, { name, addresses, wavefronts }] of facts.layouts.entries()) {
        expect(text.includes(`${name}: chunk ${chunk} of`) && text.includes(`: ${many(wavefronts[chunk], 'wavefront')}.`), `${name}, ${chunk}: ${text}`);
        // As many wavefronts as chunks lie in one column of banks.
        const columns = marked.slice(l * addresses.length, (l + 1) * addresses.length).map(([x]) => x);
        const most = Math.max(...columns.map((x) => columns.filter((other) => other === x).length));
        expect(most === wavefronts[chunk], `${name}, ${chunk}: ${most} chunks in one column, ${wavefronts[chunk]} wavefronts`);
      }
    }
  },
  async tiles(figure, facts) {
    const calls = [facts, ...facts.also].flatMap((call) => call.launches);
    for (const [c, { cells }] of calls.entries()) {
      await set(figure, 'ran', String(c));
      const text = await said(figure), all = cells.join('');
      const number = (cell) => [...all].filter((other) => other === cell).length;
      const counts = `Of ${all.length} tiles: ${number('#')} computed, ${number('m')} computed and masked, ${number('.')} skipped.`;
      expect(text.startsWith(counts), `call ${c}: ${text} instead of ${counts}`);
      const drawn = await figure.locator('rect[data-cell]').evaluateAll((tiles) => tiles.map((tile) => tile.dataset.cell));
      expectEqual(drawn.join(''), all, `tiles of call ${c}`);
      expect((await figure.locator('.checked').textContent()).endsWith('it did the same.'), 'the simulator did the same');
    }
    await set(figure, 'queries', 3);
    expect((await figure.locator('.checked').textContent()).includes('has not run this call'), 'a call that nobody ran');
    await set(figure, 'mask', 'none');
    expect((await said(figure)).includes(' 0 skipped'), 'without the mask nothing is skipped');
    // A head of 1024 queries and keys, Br = 128, Bc = 64, a window of 128: blocks of 2 tiles, 3 more but for the first.
    for (const [name, value] of Object.entries({ mask: 'window', queries: 1024, keys: 1024, left: 128, right: 0, row_tile: 128, column_tile: 64 }))
      await set(figure, name, value);
    const backward = calls[0].blocks_own_keys, tileBytes = (backward ? 128 : 64) * 2 * 2 * facts.d, read = (tiles) => bytes(tiles * tileBytes);
    expect((await said(figure)).includes(`A head reads ${read(2 + 7 * 4)} of ${backward ? 'Q and dO' : 'K and V'}; without a mask ${read(8 * 16)}.`), await said(figure));
    await set(figure, 'mask', 'both');
    await set(figure, 'sequences', 2);
    const packed = maskCells({ queries: 1024, keys: 1024, rowTile: 128, columnTile: 64, mask: 'causal+lengths=512,512' });
    expectEqual((await figure.locator('rect[data-cell]').evaluateAll((tiles) => tiles.map((tile) => tile.dataset.cell))).join(''), packed.cells.join(''), 'packed and causal');
    expect(!(await figure.locator('[name="left"]').isVisible()) && (await figure.locator('[name="sequences"]').isVisible()), 'the controls of the mask');
  },
  async softmax(figure, facts) {
    for (const { block, steps } of facts.passes) {
      await set(figure, 'block', block);
      await set(figure, 'step', steps.length);
      const rows = await figure.locator('tbody tr').evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));
      expect(rows.length === steps.length, `blocks of ${block}: ${rows.length} rows`);
      steps.forEach((step, i) => {
        expect(Math.abs(Number(rows[i][1]) - step.m) < 1e-4 && Math.abs(Number(rows[i][2]) - step.factor) < 1e-4 &&
          Math.abs(Number(rows[i][4]) - step.l) < 1e-4, `blocks of ${block}, step ${i}: ${rows[i]}`);
        // The lesson's formula.
        const before = i === 0 ? 0 : steps[i - 1].l;
        expect(Math.abs(step.l - (before * step.factor + step.added)) < 1e-9, 'l = l · factor + what the block adds');
      });
      expect((await said(figure)).includes(`LSE = m + log l = ${facts.lse.toFixed(4)}`), 'the LSE does not depend on the blocks');
    }
    await set(figure, 'step', 0);
    expect((await figure.locator('tbody tr').count()) === 0, 'no step has been done');
  },
  async timeline(figure, facts) {
    for (let interval = 0; interval < facts.intervals; ++interval) {
      await set(figure, 'interval', interval);
      const shown = await figure.locator('li').allTextContents();
      const running = facts.lanes.flatMap((lane) => lane.bars.filter((b) => b.first <= interval && interval <= b.last).map((b) => `${lane.name}: ${b.text}`));
      expectEqual(shown.map((text) => text.replace(/, from interval.*/, '')), running, `interval ${interval}`);
      expect((await figure.locator('.chosen').count()) === running.length, `marks of interval ${interval}`);
    }
    expectEqual(await figure.page().evaluate(cutTexts), [], 'texts that are wider than their bars');
  },
  async waits(figure, facts) {
    const { steps } = waitsOf(facts, 0, 1);
    await set(figure, 'shown', 5);
    for (const first of [0, facts.first, steps - 5]) {
      await set(figure, 'first', first);
      const names = await figure.locator('svg title').allTextContents();
      const bars = waitsOf(facts, first, 5).rows.flatMap((row) => row.bars.map((bar) => `${row.name}: ${bar.text}`));
      expectEqual(names, bars, `bars from step ${first}`);
      expect((await said(figure)).startsWith(`Steps ${first} to ${first + 4} of ${steps}:`), await said(figure));
    }
  },
  async algorithm(figure, facts) {
    for (const [n, step] of facts.steps.entries()) {
      await set(figure, 'step', n + 1);
      const text = await said(figure);
      for (const name of ['m', 'l']) expect(text.includes(step[name].map((value) => value.toFixed(2)).join(', ')), `${name} of step ${n}: ${text}`);
      // The definition over all keys that have been read.
      for (const [i, scores] of facts.S.entries()) {
        const seen = scores.slice(0, (n + 1) * facts.Bc), m = Math.max(...seen), weights = seen.map((s) => Math.exp(s - m));
        const l = weights.reduce((sum, w) => sum + w, 0);
        expect(Math.abs(m - step.m[i]) < 1e-9 && Math.abs(l - step.l[i]) < 1e-9, `m and l of row ${i} in step ${n}`);
        step.O[i].forEach((o, c) => expect(Math.abs(o - weights.reduce((sum, w, j) => sum + w * facts.V[j][c], 0)) < 1e-9, `O of row ${i} in step ${n}`));
      }
    }
  },
  async plot(figure, facts) {
    await figure.locator('summary').click();
    const boxes = figure.locator('[type=checkbox]'), names = await boxes.evaluateAll((all) => all.map((box) => box.value));
    const all = [...new Set(facts.panels.flatMap((panel) => panel.curves.map((curve) => curve.title)))].filter(Boolean);
    expectEqual(names, all, 'series');
    const drawn = () => figure.locator('svg text').allTextContents();
    for (const [i, name] of names.entries()) {
      expectEqual(await boxes.nth(i).isChecked(), (await drawn()).includes(name), `${name} is drawn`);
      await boxes.nth(i).setChecked(i === 0);
    }
    expect((await said(figure)) === `1 of ${names.length} series.` && !(await drawn()).includes(names[1]), 'only the first one');
  },
  async formats(figure, facts) {
    for (const power of [-30, -10, 17]) {
      await set(figure, 'power', power);
      const rows = await figure.locator('tr:has(td)').evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));
      expectEqual(rows.map(([name]) => name), facts.formats.map(({ name }) => name), 'formats');
      for (const [i, { largest, smallest_normal: normal, smallest }] of facts.formats.entries()) {
        const size = 2 ** power, state = size > largest ? /too large/ : size < smallest ? /rounded to 0/ : size < normal ? /^subnormal/ : /^normal/;
        expect(state.test(rows[i][1]), `${rows[i]} at 2^${power}`);
      }
    }
  },
  async blocks(figure, facts) {
    for (const [i, { kernel, cells }] of facts.launches.entries()) {
      await set(figure, 'mask', String(i));
      await set(figure, 'row', cells.length - 1);
      const row = [...cells.at(-1)], read = row.filter((cell) => cell !== '.').length;
      expectEqual(await said(figure), `${kernel}: Q tile ${cells.length - 1} reads ${read} of ${row.length} K/V tiles.`, 'tiles read');
      const skipped = ranges(row.flatMap((cell, j) => (cell === '.' ? j : []))) || 'none';
      expectEqual(await figure.locator('li').last().textContent(), `K/V tiles skipped: ${skipped}`, 'tiles skipped');
    }
  },
  async packing(figure, facts) {
    for (const [i, { queries, blocks, packs }] of facts.runs.entries()) {
      await set(figure, 'queries', i);
      const text = await said(figure);
      expect(text.includes(`: ${many(blocks[0], 'thread block')} not packed, ${blocks[1]} packed.`), text);
      expect(text.endsWith(`The rule ${packs ? 'packs' : 'does not pack'}.`), text);
      const drawn = await figure.locator('rect[data-rows]').evaluateAll((all) => all.reduce((sum, { dataset }) => sum + Number(dataset.rows), 0));
      expectEqual(drawn, 2 * facts.heads * queries, `rows with Nq = ${queries}`);
    }
  },
  async ranks(figure, facts) {
    for (const [R, power, G, W] of [[4, 12, 4, 370], [2, 8, 1, 25], [8, 16, 8, 370], [3, 11, 4, 100]]) {
      await set(figure, 'ranks', R);
      await set(figure, 'tokens', power);
      for (const [name, value] of [['group', G], ['link', W]]) await figure.locator(`[name="${name}"]`).selectOption(String(value));
      const n = 2 ** power, text = await said(figure), hidden = 2 * facts.tflops * 1e12 <= n * G * W * 1e9;
      expect(text.includes(hidden ? ': hidden.' : ': not hidden.'), text);
      expect(text.includes(R > 1 + G ? 'Ulysses sends less' : 'a ring sends less'), text);
      const waiting = await figure.locator('rect[data-waits]').evaluateAll((all) => all.map(({ dataset }) => dataset.waits));
      expectEqual(waiting, [...(hidden ? [] : ['ring']), 'all-gather', 'Ulysses'], 'transfers that are not hidden');
    }
  },
  async dropout(figure, facts) {
    for (const [query, key, dropped] of [[0, 1, 26], [5, 2, 0], [7, 7, 255]]) {
      for (const [name, value] of Object.entries({ query, key, dropped })) await set(figure, name, value);
      const below = facts.bytes.flat().filter((byte) => byte < dropped).length;
      expect((await said(figure)).includes(`: ${below} of 1024 pairs`), await said(figure));
      for (const [n, [row, column]] of [[query, key], [key, query]].entries()) {
        // The lesson's table: row / 8 = 2i + e / 2, column / 8 = j, and two columns modulo 8.
        const lane = 4 * row + (column >> 1);
        let kept = 0n;
        for (let bit = 0; bit < 32; ++bit) {
          const [i, j, e] = [bit >> 4, (bit >> 2) & 3, bit & 3], at = [8 * (2 * i + (e >> 1)) + row, 8 * j + 2 * (lane % 4) + (e & 1)];
          if (facts.bytes[at[n]][at[1 - n]] >= dropped) kept |= 1n << BigInt(bit);
        }
        const text = await figure.locator('li').nth(n).textContent();
        expect(text.endsWith(`of lane ${lane} is 0x${kept.toString(16).padStart(8, '0')}.`), text);
      }
    }
  },
  async roofline(figure, facts) {
    const dots = async () => (await figure.locator('svg :is(circle, polygon)').count()) / 2; // and in the legend
    expect((await dots()) === facts.stages.length, 'a dot a stage');
    await set(figure, 'stage', facts.stages[0].name);
    expect((await dots()) === 1 && (await said(figure)).startsWith(`${facts.stages[0].name}: `), 'one stage');
    await set(figure, 'stage', 'all');
    const file = (name, content) => ({ name, mimeType: 'application/json', buffer: Buffer.from(content) });
    const point = { kind: 'stage', pass: facts.section.split(',')[0], name: 'mine', d: 64, N: 512, causal: false, tflops: 100, gigabytes_per_second: 500 };
    await figure.locator('[type=file]').setInputFiles(file('results.json', JSON.stringify({ points: [point] })));
    await figure.locator('.said', { hasText: 'yours' }).waitFor({ timeout: 5000 });
    expect((await said(figure)).includes('mine, d = 64, N = 512 (yours): 100 TFLOP/s at 200 FLOP per byte'), 'the reader’s own stage');
    expect((await dots()) === facts.stages.length + 1, 'its dot');
    await figure.locator('[type=file]').setInputFiles(file('other.json', '{}'));
    await figure.locator('.message', { hasText: 'it has no points' }).waitFor({ timeout: 5000 });
    expect((await dots()) === facts.stages.length, 'and gone');
  },
  async traffic(figure, facts) {
    for (const [i, length] of facts.lengths.entries()) {
      await set(figure, 'length', i);
      const text = await said(figure);
      expect(text.startsWith(`At N = ${length}: `), text);
      for (const curve of facts.curves) {
        const [, value, unit] = new RegExp(`${curve.name} requests ([\\d.e+]+) (\\w+)`).exec(text);
        const shown = Number(value) * { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 }[unit];
        expect(Math.abs(shown / curve.requested[i] - 1) < 0.01, `${curve.name} at ${length}: ${text}`);
      }
    }
  },
};

async function testFigures(readers, tests, pages) {
  const seen = new Set(), out = readers[0].out;
  const withFigures = pages.filter(({ url }) => readFileSync(join(out, url), 'utf8').includes('data-figure='));
  await inWindows(readers, withFigures, async (reader, { url }) => {
    await reader.open(url);
    const embedded = await reader.page.locator('script[data-figure]').evaluateAll((all) =>
      all.map((script) => ({ source: script.dataset.source, facts: JSON.parse(script.textContent) })));
    for (const { source, facts } of embedded) {
      await tests.run(`${dirname(url)}: ${source} to touch`, async () => {
        const figure = reader.page.locator(`.touch[data-source="${source}"]`);
        expect((await figure.count()) === 1, 'it is not there');
        expect(await figure.getByText(facts.title, { exact: true }).isVisible(), 'its title is not shown');
        expect(!(await reader.page.locator(`img[src$="${source.split('/').at(-1)}"]`).first().isVisible()), 'the picture is there a second time');
        await figureTests[facts.kind](figure, facts);
        reader.quiet();
      });
      seen.add(facts.kind);
    }
  });
  await tests.run('there is a figure of every kind', () => expectEqual([...seen].sort(), Object.keys(figures).sort(), 'kinds'));
}

/// An exercise is ticked by hand or by status --json, and stays so on the next page; a play button moves its slider.
async function testTicks(reader) {
  const { page } = reader;
  await reader.open('chapters/02_online_softmax/index.html');
  const ticks = page.locator('.tick input'), marks = page.locator('#book-outline .solved');
  await ticks.first().check();
  await reader.open('chapters/02_online_softmax/index.html');
  expect((await ticks.first().isChecked()) && (await marks.count()) === 1, 'the tick is kept');
  const file = (content) => ({ name: 'status.json', mimeType: 'application/json', buffer: Buffer.from(content) });
  const exercises = [['2.2', 'passing'], ['2.3', 'passing'], ['2.4', 'open']].map(([id, state]) => ({ id, state }));
  await page.locator('#book-status').setInputFiles(file(JSON.stringify({ chapters: [{ exercises }] })));
  await page.locator('#book-solved', { hasText: '2 solved' }).waitFor({ state: 'attached', timeout: 5000 });
  expectEqual(await ticks.evaluateAll((all) => all.filter((tick) => tick.checked).map((tick) => tick.value)), ['2.2', '2.3'], 'solved');
  await page.locator('#book-status').setInputFiles(file('{}'));
  await page.locator('#book-solved', { hasText: 'no output of' }).waitFor({ state: 'attached', timeout: 5000 });
  const algorithm = page.locator('[data-kind=algorithm]'), play = algorithm.locator('button');
  await set(algorithm, 'step', 0);
  await play.click();
  await algorithm.locator('.said', { hasText: 'After 1 of' }).waitFor({ timeout: 5000 });
  await play.click();
  expectEqual(await play.textContent(), 'Play', 'a click pauses');
  reader.quiet();
}

async function testPage(reader) {
  const { page } = reader;
  await reader.open('index.html');
  await page.setViewportSize({ width: 1600, height: 900 });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMedia({ colorScheme: 'light' });
  const light = await background();
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await background();
  expect(light !== dark, 'light and dark look alike');
  const choose = async (theme) => {
    await page.locator('#book-settings summary').click();
    await page.locator('#book-theme').selectOption(theme);
  };
  await choose('light');
  expect((await background()) === light, 'light by choice');
  await reader.open('notes/results.html');
  expect((await background()) === light, 'the choice holds on the next page');
  expect((await page.evaluate(() => document.documentElement.scrollHeight)) < 23000, 'the page of results is long');
  await page.emulateMedia({ media: 'print' });
  expect((await page.locator('.tables').evaluateAll((all) => all.filter((tables) => tables.checkVisibility()).length)) === 0, 'folded tables are printed');
  await page.emulateMedia({ media: 'screen' });
  await choose('system');

  await page.keyboard.press('/');
  const words = page.locator('#book-words');
  await words.fill('bank conflict');
  await page.locator('#book-found', { hasText: ' found' }).waitFor({ timeout: 10000 });
  const found = Number(/\d+/.exec(await page.locator('#book-found').textContent())[0]);
  expectEqual(await page.locator('#book-results a').count(), Math.min(found, 20), 'of all that was found, twenty are shown');
  expect((await page.locator('#book-results li:not(:has(mark))').count()) === 0, 'what was found is marked');
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('href'));
  const where = await page.locator('#book-results a').evaluateAll((all) => all.map((link) => link.getAttribute('href')));
  for (const [key, link] of [['ArrowDown', where[0]], ['ArrowDown', where[1]], ['ArrowUp', where[0]], ['ArrowUp', null], ['ArrowUp', where.at(-1)]]) {
    await page.keyboard.press(key);
    expectEqual(await focused(), link, key);
  }
  await words.press('Enter');
  await page.waitForURL((url) => !url.href.includes('notes/results.html'));
  expect(/bank conflict/i.test(await page.locator('main').textContent()), 'what was found is on the page');

  await page.locator('a[rel=next]').click();
  await page.locator('a[rel=prev]').click();
  await page.setViewportSize({ width: 400, height: 900 });
  expect(!(await page.locator('#book-contents').isVisible()), 'narrow: the contents are folded');
  await page.locator('#book-menu').click();
  expect(await page.locator('#book-contents').isVisible(), 'and unfold');
  await reader.open('chapters/04_q_split/index.html');
  const term = page.locator('a.term').first(), shown = () => term.evaluate((link) => getComputedStyle(link, '::after').content);
  for (const [action, before] of [['hover', 'none'], ['focus', 'none']]) {
    expectEqual(await shown(), before, 'a definition before it is asked for');
    await term[action]();
    expect((await shown()).includes(await term.getAttribute('data-definition')), `a definition on ${action}`);
    await page.mouse.move(0, 0);
  }
  await page.locator('.exercise').nth(3).scrollIntoViewIfNeeded();
  await page.locator('#book-here').click();
  expect(await page.locator('#book-outline [aria-current]').isVisible(), 'the outline shows the current position');
  await page.locator('#book-outline a', { hasText: '4.6' }).click();
  expect(!(await page.locator('#book-outline').isVisible()), 'the outline folds');
  await page.locator('#book-outline a[aria-current]', { hasText: '4.6' }).waitFor({ state: 'attached', timeout: 5000 });
  expect(await words.isVisible() && (await words.boundingBox()).y >= 0, 'the search stays in reach');

  await reader.open('chapters/02_online_softmax/index.html');
  const command = page.locator('.exercise .command').first(), hints = page.locator('.exercise').first().locator('.hint');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await command.locator('.copy').click();
  await command.locator('.copy', { hasText: 'Copied' }).waitFor({ timeout: 5000 });
  expectEqual(await page.evaluate(() => navigator.clipboard.readText()), './workbook test 2.1', 'what is copied');
  expect((await hints.nth(0).isVisible()) && !(await hints.nth(1).isVisible()), 'the second hint is hidden');
  await hints.nth(0).locator('summary').click();
  expect((await hints.nth(1).isVisible()) && !(await hints.nth(2).isVisible()), 'until the first one is open');
  await hints.nth(0).locator('summary').click();
  await page.emulateMedia({ media: 'print' });
  expect(!(await page.locator('header').isVisible()) && !(await page.locator('.touch').first().isVisible()), 'paper has no controls');
  const answer = page.locator('main details:not(.hint) > p').first(), seen = () => answer.evaluate((text) => text.checkVisibility({ contentVisibilityAuto: true }) && text.clientHeight > 0);
  expect(await seen(), 'paper has the answers to "predict before you run"');
  await page.emulateMedia({ media: 'screen', colorScheme: 'light' });
  expect(!(await seen()), 'and the screen has them folded');
  reader.quiet();
}

/// From the start page: a query, and a click on the first of what is found.
async function testQuestions(reader, width) {
  await reader.page.setViewportSize({ width, height: 800 });
  for (const [query, answer] of [['how to install', /^Installing/], ['exercise 4.3', /^4\.3 /], ['what is an LSE', /^LSE/], ['why padding', /^Padding/], ['fastest kernel', /^The fastest kernels/]]) {
    await reader.open('index.html');
    await reader.page.locator('#book-words').fill(query);
    await reader.page.locator('#book-found', { hasText: ' found' }).waitFor({ timeout: 10000 });
    await reader.page.locator('#book-results a').first().click();
    await reader.page.waitForURL(({ href }) => !href.endsWith('/index.html'));
    const heading = reader.page.getByRole('heading', { name: answer }), { y } = await heading.boundingBox();
    expect(y > 40 && y < 400, `${query}: the answer is at ${y}`);
  }
  // Without the search: what sells the book is one screen, on a phone its first links are; and links lead on.
  for (const [clicks, answer] of [[['install'], /^Installing/], [['10 exercises', '4.3'], /^4\.3 /], [['Glossary'], /^LSE/], [['Glossary'], /^Padding/], [['results'], /^The fastest kernels/]]) {
    await reader.open('index.html');
    const parts = await reader.page.locator(width < 832 ? '.start > :first-child a' : '.start > :nth-child(-n+4)').evaluateAll((all) => all.map((part) => part.getBoundingClientRect().bottom));
    expect(parts.length > 1 && Math.max(...parts) < (width < 832 ? 740 : 800), `the first screen ends at ${parts}`);
    for (const text of clicks) await reader.page.locator('main').getByText(text, { exact: true }).first().click();
    await reader.page.getByRole('heading', { name: answer }).waitFor({ timeout: 10000 });
    await reader.page.waitForLoadState();
  }
  reader.quiet();
}

/// Opens a page that trace --html wrote: small, quick, as wide as the screen.
async function openTrace(browser, trace) {
  const html = readFileSync(trace, 'utf8');
  expect(html.length < 5 * 1024 ** 2, `it has ${html.length} bytes`);
  const reader = new Reader(browser, dirname(trace));
  await reader.start();
  const started = Date.now();
  await reader.open(trace.slice(dirname(trace).length + 1));
  console.log(`# ${trace.slice(dirname(trace).length + 1)}: ${html.length} bytes, open in ${Date.now() - started} ms`);
  await reader.fits('trace');
  return reader;
}

const document_of = (trace) => JSON.parse(readFileSync(trace.replace(/html$/, 'json'), 'utf8'));

/// By line: the page's tables are the JSON's, what lines ask for adds up to what the launches do, and the choice of a
/// line shows the banks of its worst access.
async function testLines(reader, document) {
  const all = { shared: 0, ideal: 0, sectors: 0 }, conflicts = [];
  for (const part of document.lines) {
    for (const { costs, worst, line } of part.lines) {
      all.shared += costs.shared_wavefronts;
      all.ideal += costs.shared_ideal;
      all.sectors += costs.sectors;
      if (worst) conflicts.push({ ...worst, line });
    }
  }
  const counted = { shared: 0, ideal: 0, sectors: 0 };
  for (const { counters } of document.launches) {
    counted.shared += counters['shared.load_wavefronts'] + counters['shared.store_wavefronts'];
    counted.ideal += counters['shared.load_ideal'] + counters['shared.store_ideal'];
    for (const name of ['load', 'async', 'store', 'atomic']) counted.sectors += counters[`global.${name}_sectors`];
  }
  expectEqual(all, counted, 'all lines together');
  const part = reader.page.locator('.lines').first();
  const rows = await part.locator(':scope > div > .scroll tr').evaluateAll((trs) => trs.map((tr) => [...tr.cells].map((c) => c.textContent)));
  for (const { lines } of document.lines) {
    for (const { line, costs } of lines) {
      const row = rows.find((cells) => cells[0] === String(line) && cells[2] === String(costs.shared_wavefronts));
      expect(row && row[5] === String(costs.sectors), `line ${line} is on the page: ${row}`);
    }
  }
  expect(conflicts.length > 0, 'the kernel has conflicts to show');
  const choice = part.locator('select'), shown = part.locator('.access');
  for (let i = 0; i < conflicts.length; ++i) {
    await choice.selectOption({ index: i });
    const { line, bank, wavefronts, banks, bytes } = conflicts[i];
    const text = await shown.textContent();
    expect(text.includes(`line ${line}: ${wavefronts} wavefronts`), `${text} is of line ${line}`);
    const requested = await shown.locator('td').evaluateAll((cells) => cells.map((c) => [Number(c.textContent), c.className]));
    for (let b = 0; b < 32; ++b) {
      const count = banks.filter((first) => (b - first + 32) % 32 < bytes / 4).length;
      expectEqual(requested[b], [count, b === bank ? 'hot' : ''], `bank ${b} of line ${line}`);
    }
  }
}

/// One row: the chosen one's values by interval, of which the slider's is marked; its sum comes to all of it, from one
/// tile of keys to the next.
async function testRows(reader, part, slider) {
  const values = part.locator('.values'), rows = values.locator('tbody tr');
  expect(await values.isVisible(), 'the kernel noted its rows');
  const read = () => rows.evaluateAll((trs) => trs.map((tr) => [...tr.cells].map((cell) => cell.textContent)));
  const head = await values.locator('th').allTextContents();
  expectEqual(head, ['interval', 'm', 'l', 'O[0]', 'share of the sum', 'O[0] / l'], 'columns');
  const of_first = await read();
  await values.locator('select').selectOption('70');
  const of_70 = await read();
  expect(JSON.stringify(of_first) !== JSON.stringify(of_70), 'another row has other values');
  const shares = of_70.map((cells) => Number.parseFloat(cells[4]));
  expect(shares.length > 1 && shares.every((share, i) => i === 0 || share >= shares[i - 1]), `shares grow: ${shares}`);
  expectEqual(of_70.at(-1)[4], '100.0 %', 'the last share');
  const marked = values.locator('tr.now');
  await slider.press('Home');
  expectEqual(await marked.count(), 0, 'nothing is noted in interval 0');
  await slider.press('End');
  expectEqual(await marked.locator('td').first().textContent(), of_70.at(-1)[0], 'the interval marked at the end');
}

/// Two kernels side by side: the sums are the records', and the sliders go together while they should.
async function testPair(browser, trace, axe) {
  const reader = await openTrace(browser, trace);
  expectEqual(await reader.page.locator('.kernel').count(), 2, 'kernels');
  const [first, second] = [0, 1].map((i) => reader.page.locator('.kernel').nth(i).locator('.time [name=interval]').first());
  await first.focus();
  await reader.page.keyboard.press('End');
  expectEqual(await second.inputValue(), await second.getAttribute('max'), 'the other slider');
  await reader.page.locator('.together input').uncheck();
  await first.focus();
  await reader.page.keyboard.press('Home');
  expectEqual(await second.inputValue(), await second.getAttribute('max'), 'the other slider, alone');
  const sums = document_of(trace).launches.reduce((sum, { counters }) => sum + counters.block_barriers, 0);
  const row = await reader.page.locator('tr', { hasText: '__syncthreads' }).first().locator('td').allTextContents();
  expectEqual(Number(row[1]), sums, 'barriers of the first kernel');
  for (const colorScheme of ['light', 'dark']) {
    await reader.page.emulateMedia({ colorScheme });
    await reader.accessible('two traces', axe);
  }
  reader.quiet();
}

/// One kernel: at its last interval the page says what the trace's counters say.
async function testTrace(browser, trace, axe) {
  const reader = await openTrace(browser, trace);
  const part = reader.page.locator('.time').first(), figure = part.locator('[data-kind=timeline]');
  const slider = figure.locator('[name=interval]'), shown = figure.locator('.said');
  const lesson = await reader.page.getByText('The lesson').evaluate(({ href }) => href);
  expect(/^# Chapter/.test(readFileSync(fileURLToPath(lesson), 'utf8')), `${lesson} is no lesson`);
  expect((await shown.textContent()).startsWith('Interval 0 of'), 'it begins at interval 0');
  await slider.focus();
  await reader.page.keyboard.press('ArrowRight');
  expect((await shown.textContent()).startsWith('Interval 1 of'), 'an arrow key goes on');
  const drawn = await figure.locator('rect.chosen').count(), said = await figure.locator('li').allTextContents();
  expect(drawn > 0 && drawn === said.filter((line) => !/^(Waits|So far):/.test(line)).length, 'what happens in interval 1 is marked, and nothing else');
  await reader.page.keyboard.press('End');
  const text = (await figure.locator('li').allTextContents()).at(-1);
  const document = document_of(trace), launch = document.launches[0];
  await testLines(reader, document);
  await testRows(reader, part, slider);
  const product = (sizes) => sizes.reduce((a, b) => a * b), warps = product(launch.block) / 32;
  // All of a block's barriers, and at each of them its warps wait.
  const waits = part.locator('[data-kind=waits]'), steps = Number(/of (\d+):/.exec(await waits.locator('.said').textContent())[1]);
  expectEqual(steps - 1, launch.counters.block_barriers / product(launch.grid), 'steps, one a barrier');
  await set(waits, 'shown', 3);
  expect((await waits.locator('svg title').allTextContents()).join().includes('__syncthreads'), 'waits are named');
  expect((await waits.locator('.said').textContent()).includes(`${warps} warps`), 'all warps');
  if (launch.grid.every((blocks) => blocks === 1)) {
    for (const { name, counters } of launch.tensors) {
      for (const moved of [counters.load_bytes + counters.async_bytes, counters.store_bytes].filter((bytes) => bytes > 0)) {
        const unit = moved >= 1024 ** 2 ? ['MiB', 1024 ** 2] : ['KiB', 1024];
        expect(text.includes(`${name} ${(moved / unit[1]).toFixed(1)} ${unit[0]}`), `${name}: ${moved} bytes; ${text}`);
      }
    }
  }
  for (const colorScheme of ['light', 'dark']) {
    await reader.page.emulateMedia({ colorScheme });
    await reader.accessible('trace', axe);
  }
  reader.quiet();
}

/// test(reader, page) for every page, each window with one at a time.
async function inWindows(readers, pages, test) {
  const left = [...pages];
  await Promise.all(readers.map(async (reader) => {
    for (let page; (page = left.shift());) await test(reader, page);
  }));
}

async function testPages(tests, readers, pages, axe) {
  const source = pages.find(({ group }) => group === 'sources')?.url;
  await inWindows(readers, pages, async (reader, { url, group }) => {
    await tests.run(`${url} opens, fits ${widths.join(', ')} pixels`, async () => {
      await reader.open(url);
      await reader.fits(url);
      expectEqual(await reader.page.locator('main pre:not(.drawing)').count(), await reader.page.locator('.code .copy').count(), 'copy buttons');
    });
    // Source files all look alike: the first one stands for them.
    if (group === 'sources' && url !== source) return;
    for (const colorScheme of ['light', 'dark']) {
      await tests.run(`${url} is accessible, ${colorScheme}`, async () => {
        await reader.page.emulateMedia({ colorScheme });
        await reader.accessible(url, axe);
        reader.quiet();
      });
    }
  });
}

async function testInChromium(tests, executablePath, out, tool, pages, trace) {
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
  try {
    // A window for each core.
    const readers = Array.from({ length: cpus().length }, () => new Reader(browser, out));
    for (const reader of readers) await reader.start();
    const axe = readFileSync(join(tool, 'node_modules/axe-core/axe.min.js'), 'utf8');
    await testPages(tests, readers, pages, axe);
    await testFigures(readers, tests, pages);
    await tests.run('no text of a picture is cut, or wider than its box', async () => {
      const cut = {};
      for (const file of readdirSync(out, { recursive: true }).filter((name) => name.endsWith('.svg'))) {
        await readers[0].open(file);
        const texts = await readers[0].page.evaluate(cutTexts);
        if (texts.length > 0) cut[file] = texts;
      }
      expectEqual(cut, {}, 'texts beyond an edge');
    });
    await tests.run('colours, search, contents, print', () => testPage(readers[0]));
    for (const width of [360, 1280]) await tests.run(`questions of readers take two actions at ${width} pixels`, () => testQuestions(readers[0], width));
    await tests.run('solved exercises are ticked, and a figure plays', () => testTicks(readers[0]));
    if (trace) await tests.run('a trace that one scrubs through', () => testTrace(browser, trace, axe));
    const pair = trace?.replace(/\.html$/, '_beside.html');
    if (pair && existsSync(pair)) await tests.run('two traces side by side', () => testPair(browser, pair, axe));
  } finally {
    await browser.close();
  }
}

/// Questions of readers, and the page that answers each.
function testSearch(out) {
  const window = {};
  for (const name of Object.keys(options)) new Function('window', readFileSync(join(out, `assets/search-${name}.js`), 'utf8'))(window);
  const load = (name) => MiniSearch.loadJSON(window.workbookSearch[name], options[name]), headings = load('headings'), text = load('text');
  const answers = Object.entries({
    '4.3': '04_q_split/index.html#43-', 'exercise 11.6': '11_wgmma/index.html#116-', 'chapter 9': '09_backward_registers/index.html',
    'q_split.hpp': '04_q_split/q_split.hpp.html', 'online softmax': '02_online_softmax/index.html', 'conditional rescaling': '04_q_split/index.html#48-',
    'what is an LSE': 'glossary.html#lse', logsumexp: 'glossary.html#lse', 'warp specialization': 'glossary.html#warp-specialisation',
    'sliding window': 'glossary.html#sliding-window', 'race condition': 'glossary.html#race', HBM: 'glossary.html#device-memory',
    'why padding': 'glossary.html#padding', padded: 'glossary.html#padding', paddi: 'glossary.html#padding', 'bank conflicts': 'glossary.html#bank-conflict', warp: 'glossary.html#thread-block-warp-and-lane',
    'how to install': 'installing.html', 'circular buffer': 'glossary.html#ring-of-stages', nsight: 'profiling.html',
    'fastest kernel': 'results.html#the-fastest-kernels', 'online sofmax': '02_online_softmax/index.html',
    'do I need a GPU': 'installing.html#gpu-and-cuda-toolkit-not-needed', 'running maximum': 'glossary.html#row-maximum-m-and-row-sum-l',
    'cuda toolkit': 'installing.html#gpu-and-cuda-toolkit-not-needed', hint: 'commands.html#commands', solution: 'commands.html#commands',
    FA3: 'glossary.html#flashattention', 'flashattention-2': 'glossary.html#flashattention', 'multi-query attention': 'glossary.html#grouped-query-attention',
    decoding: 'glossary.html#decoding', 'flash decoding': 'glossary.html#split-kv', 'what is P': 'glossary.html#scores-s-and-probabilities-p',
    'numerically stable softmax': 'glossary.html#stable-softmax', reproducible: 'glossary.html#deterministic-mode', RNG: 'glossary.html#philox',
    'position encoding': 'glossary.html#rope', CTA: 'glossary.html#thread-block-warp-and-lane', 'global memory': 'glossary.html#device-memory',
    pingpong: 'glossary.html#ping-pong-schedule', swizzling: 'glossary.html#swizzle', benchmark: 'results.html#the-benchmark-what-is-measured',
    __restrict__: '03_tiled_wmma/index.html#31-', kept_pairs: '17_rope_dropout/index.html#172-', address_in_sum: '09_backward_registers/index.html#coalesced-',
    'why log2': 'glossary.html#powers-of-two', docker: 'installing.html#macos-and-windows', submit: 'instructors.html#grading',
    'ex 4.3': '04_q_split/index.html#43-', 'task 4.3': '04_q_split/index.html#43-', '4.3 exercise': '04_q_split/index.html#43-',
    'logsumexp meaning': 'glossary.html#lse', requirements: 'installing.html', dependencies: 'installing.html', setup: 'installing.html',
  });
  expectEqual(answers.length, 55, 'queries');
  const wrong = answers.map(([query, url]) => [query, url, find(query, headings, text)[0]?.url]).filter(([, url, first]) => !first?.includes(url));
  expectEqual(wrong, [], 'query, expected and first');
  for (const { text: whole = '', terms } of answers.flatMap(([query]) => find(query, headings, text).slice(0, 20))) {
    const part = excerpt(whole, terms, 180);
    expect(` ${whole} `.includes(` ${part.replace(/^…|…$/g, '')} `) && part.length < 183, `an excerpt cuts a word: ${part}`);
    expect(!marked(whole, terms)[1] || marked(part, terms)[1], `an excerpt without what was found: ${part}`);
  }
  expect(find('online softmax', headings).length > 3, 'headings are found before the text is loaded');
}

/// No dollar is left of a formula, and no block of text is one.
function testFormulas(root, out, pages) {
  let found = 0;
  for (const page of pages.filter((page) => page.path.endsWith('.md'))) {
    const html = readFileSync(join(out, page.url), 'utf8');
    const prose = html.replace(/<script[^]*?<\/script>|<(pre|code)[^]*?<\/\1>|<math[^]*?<\/math>|<[^>]*>/g, '');
    const left = /\$[^$\n]*\$/.exec(prose) ?? /<pre tabindex="0"(?: class="drawing")?><code>[^<]*([Σ∏∂∇∫]|\w_\{|\b\w+_ij\b)/.exec(html);
    expect(!left, `${page.path}: not typeset: ${left?.[0]}`);
    found += html.split('<math').length - 1;
  }
  expect(found > 0, 'no page has a formula');
}

/// Every exercise of every chapter.toml has its card, which leads to its task, which leads back.
function testExercises(root, out, pages) {
  let exercises = 0;
  for (const { url, path } of pages.filter(({ group }) => group === 'chapters')) {
    const html = readFileSync(join(out, url), 'utf8'), manifest = readFileSync(join(root, dirname(path), 'chapter.toml'), 'utf8');
    const cards = html.match(/<section class="exercise">[^]*?<\/section>/g) ?? [], listed = manifest.split('[[exercise]]').slice(1);
    expectEqual(cards.length, listed.length, `${url}: cards`);
    expect(html.includes('data-figure='), `${url} has no figure to touch`);
    for (const card of cards) {
      const [, id] = /<span>([\d.]+) /.exec(card), entry = listed.find((text) => text.includes(`id = "${id}"`));
      const [, points, lines] = /points = (\d+)\nlines = (\d+)/.exec(entry), hints = /\nhints = \[\n([^]*?)\n\]/.exec(entry)[1].split('\n').length;
      const [, anchor] = /<h3 id="([^"]*)"/.exec(card), [, file, line] = /href="([^"#]*)#L(\d+)"/.exec(card);
      for (const part of [`${points} point`, `${lines} line`, `>./workbook test ${id}<`, `Hint 1 of ${hints}<`])
        expect(card.includes(part), `${url}, card of ${id}: no ${part}`);
      expectEqual(card.split('<details class="hint">').length - 1, hints, `${url}: hints of ${id}`);
      const task = readFileSync(join(out, dirname(url), file), 'utf8').split('\n').find((text) => text.includes(`id="L${line}"`));
      expect(task.includes(`<a href="index.html#${anchor}">TODO(${id})</a>`), `${file}, line ${line}, does not lead back to ${id}: ${task}`);
      ++exercises;
    }
  }
  expect(exercises >= 150, `only ${exercises} exercises`);
  expect(!pages.some(({ path }) => path.endsWith('.toml')), 'a page shows a manifest, and so all hints');
}

/// The sources of lessons and the entries of notes/reading.md: each has an address, but for a standard and for code.
function testReferences(out, pages) {
  const none = [];
  let references = 0;
  for (const { url } of pages.filter(({ group, path }) => group === 'chapters' || path === 'notes/reading.md')) {
    const html = readFileSync(join(out, url), 'utf8'), sources = /<h2 id="sources"[^]*?(<h2|<footer)/.exec(html)?.[0];
    for (const [entry] of (sources ?? html).matchAll(sources ? /<li>[^]*?<\/li>/g : /<p><strong>[^]*?<\/p>/g)) {
      ++references;
      if (!/href="https:/.test(entry) && !/IEEE 754|torch\.amp|scaled_dot_product|pull requests/.test(entry)) none.push(`${url}: ${entry}`);
    }
  }
  expectEqual(none, [], 'references without an address');
  expect(references > 100, `only ${references} references`);
}

function testHeads(out, pages) {
  for (const { url, group } of pages) {
    const html = readFileSync(join(out, url), 'utf8');
    expect(/<meta name="description" content="[^"]{10,}"/.test(html), `${url} has no description`);
    expect(/<link rel="icon" href="data:image/.test(html), `${url} has no icon`);
    expect(group === 'missing' || /rel="(prev|next)"/.test(html), `${url} leads to no other page`);
  }
}

/// From page to page, chapters have the order of README's table.
function testOrder(root, out) {
  const rows = [...readFileSync(join(root, 'README.md'), 'utf8').matchAll(/^\| \[\d[^\]]*\]\((chapters\/[^)]*)README\.md\)/gm)].map(([, folder]) => `${folder}index.html`);
  const next = (url) => join(dirname(url), /rel="next" href="([^"]*)"/.exec(readFileSync(join(out, url), 'utf8'))[1]);
  const order = [next('index.html')];
  while (order.length < rows.length) order.push(next(order.at(-1)));
  expectEqual(order, rows, 'chapters');
}

/// Before anything folded, the page of results has its summary and its plots; the profiler's tables are elsewhere.
function testResultsPage(out) {
  const html = readFileSync(join(out, 'notes/results.html'), 'utf8'), plots = [...html.matchAll(/<img src="figures\//g)];
  const first = html.indexOf('<details class="tables">'), summary = html.indexOf('id="the-fastest-kernels"');
  expect(plots.length >= 9 && summary > 0 && summary < plots[0].index && plots.at(-1).index < first, 'first the summary, then the plots, then tables');
  expect(!html.includes('dram__bytes_read.sum'), 'the profiler’s tables are on the page of results');
  expect(readFileSync(join(out, 'notes/results_profiler.html'), 'utf8').split('<details class="tables">').length > 80, 'and not on their own');
}

function testTerms(out, pages) {
  const glossary = readFileSync(join(out, 'notes/glossary.html'), 'utf8'), outline = /<nav id="book-outline"[^]*?<\/nav>/.exec(glossary)[0];
  expectEqual(outline.split('level-3').length, glossary.split('<h3 ').length, 'terms in the outline of the glossary');
  expect(!/\bchapter\s\d/i.test(glossary.replace(/<a [^]*?<\/a>/g, '')), 'the glossary names a chapter without a link to it');
  let terms = 0;
  for (const page of pages.filter((page) => page.group === 'chapters')) {
    for (const [, text] of readFileSync(join(out, page.url), 'utf8').matchAll(/class="term" data-definition="([^"]*)"/g)) {
      expect(text.length > 20 && !/[\[\]$]/.test(text), `${page.path}: no definition: ${text}`);
      ++terms;
    }
  }
  expect(terms > 0, 'no lesson links a term');
}

/// {root, tool, out, pages, trace} -> exit code; trace: a page of trace --html, or none
export async function test({ root, tool, out, pages, trace }) {
  const tests = new Tests(), facts = allFacts(root);
  await tests.run('the causal map of the page is the simulator’s', () => testMap(facts));
  await tests.run('the Q tiles of a group are the simulator’s thread blocks', () => testPacking(facts));
  await tests.run('pictures are what the modules draw of their facts', () => testPictures(root));
  await tests.run('warps that wait alike are one row, and steps end when a wait or a copy does', testWaits);
  await tests.run('the start page has the address of the repository', testAddress);
  await tests.run('the start page shows algorithm and speed, and where to start', () => testStart(out));
  await tests.run('results of bench are read, and what is none is told', testResults);
  await tests.run('anchors are GitHub’s', () => expectEqual(slugOf('What `l` is, and O’s 2^x'), 'what-l-is-and-os-2x', 'slug'));
  await tests.run('indices are set low and exponents high, names stay as they are', testIndices);
  await tests.run('every formula is typeset', () => testFormulas(root, out, pages));
  await tests.run('an exercise is a card, which leads to its task and back', () => testExercises(root, out, pages));
  await tests.run('a reference is a link', () => testReferences(out, pages));
  await tests.run('a page has a description, an icon, and a page before or after it', () => testHeads(out, pages));
  await tests.run('chapters follow each other as in their table', () => testOrder(root, out));
  await tests.run('results begin with their summary and plots', () => testResultsPage(out));
  await tests.run('a link to the glossary shows its definition', () => testTerms(out, pages));
  await tests.run('the search answers its questions', () => testSearch(out));
  await tests.run('every block of code is one', () => testCode(root, out, pages));
  await tests.run('every link leads somewhere', () => testLinks(out, pages));
  await tests.run('an id is there once', () => testIds(out, pages));
  await tests.run('nothing is loaded from elsewhere', () => testNothingLoaded(out, pages));
  await tests.run('no answer is on any page', () => testAnswers(root, out, pages));
  const executable = programs.find(existsSync);
  if (executable) await testInChromium(tests, executable, out, tool, pages, trace);
  else tests.skip('Chromium is not here (Debian: apt install chromium): no page was opened');
  console.log(`${tests.passed} passed, ${tests.failed} failed, ${tests.skipped} skipped`);
  return tests.failed === 0 ? 0 : 1;
}
