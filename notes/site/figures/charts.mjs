// Charts: a device's memories, stages under its roofs, bytes over N, and the plots of benchmarks and of training.
import { Picture, axis, bytes, colors, digits, logAxis, tile, width } from './paint.mjs';
import { checks, choice, frame, h, screenWidth, slider } from './parts.mjs';
import { readResults } from './results.mjs';

const three = (value) => (value >= 100 ? value.toFixed(0) : digits(value, 3));
/// So that labels at these heights stay readable: `gap` apart, in their order, between low and high.
function spread(heights, gap, low, high) {
  const order = heights.map((y, i) => ({ y, i })).sort((a, b) => a.y - b.y), placed = [];
  order.forEach(({ y, i }, n) => { placed[i] = Math.max(y, low, n === 0 ? low : placed[order[n - 1].i] + gap); });
  for (let n = order.length - 1, most = high; n >= 0; --n, most -= gap)
    placed[order[n].i] = Math.min(placed[order[n].i], most);
  return placed;
}
function drawGrid(picture, x, y, { xTicks, yTicks, xText = digits, yText = digits }) {
  for (const tick of xTicks) {
    picture.line(x(tick), y.to, x(tick), y.from, 'rule thin');
    picture.text(x(tick), y.from + 18, xText(tick), 'small mid soft');
  }
  for (const tick of yTicks) {
    picture.line(x.from, y(tick), x.to, y(tick), 'rule thin');
    picture.text(x.from - 6, y(tick) + 4, yText(tick), 'small end soft');
  }
}

const plus = [[-1, -4], [1, -4], [1, -1], [4, -1], [4, 1], [1, 1], [1, 4], [-1, 4], [-1, 1], [-4, 1], [-4, -1], [-1, -1]];
const shapes = [
  [], [[-3, -3], [3, -3], [3, 3], [-3, 3]], [[0, -4], [4, 3], [-4, 3]], [[0, -5], [4, 0], [0, 5], [-4, 0]],
  [[0, 4], [-4, -3], [4, -3]], [[-4, 0], [3, -4], [3, 4]], plus, [[4, 0], [-3, -4], [-3, 4]],
];
function drawMark(picture, x, y, number, { hollow = false, size = 1 } = {}) {
  const names = hollow ? `page s${number % colors} wide` : `k${number % colors}`, corners = shapes[(number + Math.floor(number / colors)) % shapes.length];
  if (corners.length === 0) picture.dot(x, y, 3.5 * size, names);
  else picture.polygon(corners.map(([dx, dy]) => [x + size * dx, y + size * dy]), names);
}
/// Names from `x` on, at these heights, each after its mark or the dashes of its roof.
function drawLegend(picture, x, heights, entries) {
  entries.forEach(({ text, number, hollow }, i) => {
    if (number === undefined) picture.line(x, heights[i] - 4, x + 12, heights[i] - 4, 's7 dashed');
    else drawMark(picture, x + 6, heights[i] - 4, number, { hollow });
    picture.text(x + 16, heights[i], text, number === undefined ? 'small soft' : `k${number % colors} small`);
  });
}

const gap = 18; // between names
/// Sorted names in a column at the right end of an axis, about where their curves end; or below, from a height on.
function drawEntries(picture, entries, y, right) {
  const heights = typeof y === 'number' ? entries.map((entry, i) => y + gap * i) : spread(entries.map((entry) => entry.y), gap, y.to + 4, y.from);
  drawLegend(picture, typeof y === 'number' ? 0 : right + 14, heights, entries);
}
/// A text in as many lines as it takes; where the next one would be.
function drawNote(picture, x, y, text, names = 'small soft') {
  const most = (picture.width - x) / 7, lines = [''];
  for (const word of text.split(' ')) {
    if (lines.at(-1).length + word.length < most) lines[lines.length - 1] += ` ${word}`;
    else lines.push(word);
  }
  lines.forEach((line, i) => picture.text(x, y + 17 * i, line.trim(), names));
  return y + 17 * lines.length;
}

// --- A device's memories -------------------------------------------------------------------------------------------

const rate = (tb_s) => (tb_s >= 100 ? `${tb_s.toFixed(0)} TB/s` : `${digits(tb_s, 3)} TB/s`);

export function drawMemory({ device, multiprocessors, clock_ghz: clock, levels }) {
  const picture = new Picture(), row = 74, top = 34, box = 250, left = 270, bar = logAxis(1, 1000, 0, 290);
  picture.text(0, 16, device, 'bold');
  picture.text(box + 20, 16, 'bandwidth, TB/s', 'small soft');
  for (const tick of [1, 10, 100, 1000]) {
    picture.line(left + bar(tick), top - 6, left + bar(tick), top + 4 * row - 14, 'rule thin');
    picture.text(left + bar(tick), top - 8, tick, 'tiny mid');
  }
  levels.forEach(({ name, whose, bytes: size, parts, where, tb_s, how, sheet_tb_s: sheet }, i) => {
    const y = top + i * row, inset = (3 - i) * 18, middle = (box - 10) / 2;
    const place = parts ? `${parts} x ${digits(size / parts / 1024)} KiB` : where;
    picture.rect(inset / 2, y, box - 10 - inset, row - 16, tile(i), { round: 4 });
    picture.text(middle, y + 18, name, 'mid bold');
    picture.text(middle, y + 34, bytes(size), 'small mid');
    picture.text(middle, y + 50, `${place}, ${whose}`, 'small mid soft');
    picture.rect(left, y + 8, bar(tb_s), 16, tile(i));
    let text = `${rate(tb_s)}, ${how}`;
    if (sheet) {
      picture.line(left + bar(sheet), y + 2, left + bar(sheet), y + 30, `s${i} wide`);
      text += `; ${rate(sheet)} by the data sheet`;
    }
    picture.text(left + 4, y + 42, text, 'small');
    picture.say(`${name} (${whose}): ${bytes(size)}, ${text}. `);
  });
  const end = drawNote(
    picture, 0, top + 4 * row + 4,
    `Computed: ${multiprocessors} multiprocessors at ${digits(clock)} GHz; per cycle, each has 32 banks of 4 bytes ` +
      'and three operands of 128 multiply-adds. Measured: notes/results.md. Data sheet: notes/hardware.toml.',
  );
  picture.height = end - 8;
  return picture;
}

// --- Under the roofs -----------------------------------------------------------------------------------------------

export function drawRoofline(facts, { own = [], only, wide = width } = {}) {
  const picture = new Picture(wide), { measured, data_sheet: sheet } = facts, narrow = wide < width, left = narrow ? 40 : 60;
  const stages = [...facts.stages, ...own].map((stage, number) => ({ ...stage, number })).filter(({ name }) => only === undefined || name === only);
  const x = logAxis(4, 20000, left, narrow ? wide - 18 : 490), y = logAxis(10, 2000, 340, 30);
  picture.text(0, 16, 'TFLOP/s', 'small soft');
  drawGrid(picture, x, y, { xTicks: [10, 100, 1000, 10000], yTicks: [10, 100, 1000] });
  picture.text(
    x.to, y.from + 36, narrow ? 'FLOP per byte of device memory' : 'arithmetic intensity: FLOP per byte moved between device memory and the chip', 'small end soft',
  );
  const roof = ({ tflops, tb_s }, color, more) => {
    const lowest = Math.max(x.low, y.low / tb_s), ridge = tflops / tb_s;
    picture.curve(
      [[x(lowest), y(lowest * tb_s)], [x(ridge), y(tflops)], [x.to, y(tflops)]], color, `wide${more ?? ''}`,
    );
    return ridge;
  };
  const sheetRidge = roof(sheet, 7, ' dashed'), ridge = roof(measured, 0);
  let below = y.from + 58;
  const key = (names, text) => {
    picture.line(left - 20, below - 4, left + 4, below - 4, names);
    below = drawNote(picture, left + 10, below, text, 'small') + 1;
  };
  key(
    's0 wide',
    `measured: ${measured.tflops.toFixed(0)} TFLOP/s, ${digits(measured.tb_s)} TB/s; the ridge point is ${ridge.toFixed(0)} FLOP per byte`,
  );
  key(
    's7 wide dashed',
    `data sheet: ${sheet.tflops.toFixed(0)} TFLOP/s, ${digits(sheet.tb_s)} TB/s; the ridge point is ${sheetRidge.toFixed(0)}`,
  );
  const sorted = [...stages].sort((a, b) => b.tflops - a.tflops);
  const entries = sorted.map(({ name, flop_per_byte: work, tflops, number }) => {
    const at = y(Math.min(Math.max(tflops, y.low), y.high));
    drawMark(picture, x(Math.min(Math.max(work, x.low), x.high)), at, number, { size: 1.3 });
    picture.say(`${name}: ${digits(tflops)} TFLOP/s at ${work.toFixed(0)} FLOP per byte. `);
    return { y: at + 4, text: `${name}: ${digits(tflops, 3)}`, number };
  });
  drawEntries(picture, entries, narrow ? below : y, x.to);
  picture.say(
    `The measured roof is a slope of ${digits(measured.tb_s)} TB/s up to ${ridge.toFixed(0)} FLOP per byte and then flat at ` +
      `${measured.tflops.toFixed(0)} TFLOP/s; the data sheet's corner is at ${sheetRidge.toFixed(0)}.`,
  );
  picture.height = below + 10 + (narrow ? gap * entries.length : 0);
  return picture;
}

export function roofline(facts) {
  let own = [];
  const show = () => {
    const only = stage.value === 'all' ? undefined : stage.value;
    const chosen = only === undefined ? own.map((s) => ({ ...s, name: `${s.name} (yours)` })) : facts.stages.filter((s) => s.name === only);
    const said =
      chosen
        .map(
          (s) =>
            `${s.name}: ${three(s.tflops)} TFLOP/s at ${three(s.flop_per_byte)} FLOP per byte, ` +
            `${three((100 * s.tflops) / Math.min(s.flop_per_byte * facts.measured.tb_s, facts.measured.tflops))} % of the measured roof. `,
        )
        .join('') +
      `The roof's corner is at ${three(facts.measured.tflops / facts.measured.tb_s)}; dashed: the data sheet's.`;
    return { body: [drawRoofline(facts, { own, only, wide: screenWidth() })], said };
  };
  const stage = choice({
    name: 'stage', label: 'Stage', value: 'all',
    options: [['all', 'all'], ...facts.stages.map((s) => [s.name, s.name])],
  });
  const message = h('span', { class: 'message', role: 'status' });
  const file = h('input', {
    id: `file-${facts.device}`.replace(/\W/g, '-'),
    type: 'file',
    accept: '.json',
    name: 'results',
    onchange: async () => {
      try {
        own = readResults(JSON.parse(await file.files[0].text()), facts);
        message.textContent = `${own.length} of your results are shown.`;
      } catch (error) {
        own = [];
        message.textContent = error.message;
      }
      file.dispatchEvent(new Event('input', { bubbles: true }));
    },
  });
  const load = {
    element: h(
      'div', { class: 'control' }, h('label', { for: file.id }, 'Your own results (bench --json)'), file, message,
    ),
  };
  return frame(facts, { controls: [stage, load], show });
}

// --- Bytes over N --------------------------------------------------------------------------------------------------

export function drawTraffic({ lengths, curves }, { at = lengths.length - 1, wide = width } = {}) {
  const picture = new Picture(wide), narrow = wide < width, lowest = Math.min(...curves.flatMap((c) => c.least)),
    highest = Math.max(...curves.flatMap((c) => c.requested));
  const x = logAxis(lengths[0] / 1.15, lengths.at(-1) * 1.15, narrow ? 66 : 80, narrow ? wide - 12 : 500);
  const y = logAxis(2 ** Math.floor(Math.log2(lowest)), 2 ** Math.ceil(Math.log2(highest)), 330, 30), ticks = [];
  for (let tick = y.low; tick <= y.high * 1.01; tick *= 4) ticks.push(tick);
  picture.text(0, 16, 'bytes of one head', 'small soft');
  drawGrid(picture, x, y, { xTicks: lengths, yTicks: ticks, yText: bytes });
  picture.text(x.to, y.from + 36, 'sequence length N', 'small end soft');
  picture.line(x(lengths[at]), y.to, x(lengths[at]), y.from, 's4');
  const labels = [];
  curves.forEach(({ name, requested, least }, i) => {
    const points = (of) => of.map((value, n) => [x(lengths[n]), y(value)]);
    picture.curve(points(requested), i);
    picture.curve(points(least), i, 'wide dashed');
    for (const [px, py] of points(requested)) picture.dot(px, py, 4, `k${i}`);
    const end = (of) => y(of.at(-1));
    labels.push(
      { y: end(requested) - 14, text: name, color: i },
      { y: end(requested), text: `requests ${bytes(requested[at])}`, color: i },
      { y: end(least), text: `at least ${bytes(least[at])}`, color: i },
    );
    picture.say(
      `${name}: at N = ${lengths[at]} ${bytes(requested[at])} are requested, at least ${bytes(least[at])} must move. `,
    );
  });
  const heights = narrow ? labels.map((label, i) => y.from + 60 + 17 * i) : spread(labels.map((label) => label.y), 15, y.to, y.from);
  labels.forEach(({ text, color }, i) => picture.text(narrow ? 0 : x.to + 6, heights[i], text, `k${color} small`));
  picture.height = drawNote(
    picture, 0, y.from + 60 + (narrow ? 17 * labels.length : 0),
    'Counted on the simulator. Lines: the bytes that the kernels request. Dashed: each 32-byte sector once per launch, the least that any cache allows.',
  ) - 8;
  return picture;
}

export function traffic(facts) {
  const show = () => {
    const i = at.value;
    const said = `At N = ${facts.lengths[i]}: ${facts.curves
      .map((c) => `chapter ${c.name} requests ${bytes(c.requested[i], three)}, at least ${bytes(c.least[i], three)} must move`)
      .join('; ')}. Dashed: at least.`;
    return { body: [drawTraffic(facts, { at: i, wide: screenWidth() })], said };
  };
  const at = slider({
    name: 'length', label: 'Sequence length N', low: 0, high: facts.lengths.length - 1, value: facts.lengths.length - 1,
    text: (i) => String(facts.lengths[i]),
  });
  return frame(facts, { controls: [at], show });
}

// --- Plots ---------------------------------------------------------------------------------------------------------

/// About so many round numbers from low to high.
function roundTicks(low, high, wanted = 5) {
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw)), ticks = [];
  const step = [1, 2, 5, 10].map((n) => n * power).find((size) => size >= raw);
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high * (1 + 1e-9); ++n) ticks.push(n * step);
  return ticks;
}
const powers = (base, low, high) => {
  const ticks = [];
  for (let n = Math.ceil(Math.log(low) / Math.log(base) - 1e-9); base ** n <= high * (1 + 1e-9); ++n)
    ticks.push(base ** n);
  return ticks;
};
/// The series of a plot, for each its number: `first` of them are shown at first, all dashed ones, and those of the book
/// that are highest and lowest at their largest x. They are as many as there are colours, each with its colour and shape;
/// the others have other pairs of them.
export function seriesOf({ panels }) {
  const curves = panels.flatMap((panel) => panel.curves.filter(({ title, style }) => title && style !== 'roof'));
  const names = [...new Set(curves.map(({ title }) => title))], last = ({ points }) => points.at(-1)[1];
  const dashed = names.filter((name) => curves.some(({ title, style }) => title === name && style === 'dashed'));
  const height = (name) => panels.reduce((sum, panel) => {
    const curve = panel.curves.find(({ title }) => title === name);
    return sum + (curve ? last(curve) / Math.max(...panel.curves.map(last)) : 0);
  }, 0);
  const own = names.filter((name) => !dashed.includes(name)).sort((a, b) => height(b) - height(a)), left = colors - dashed.length;
  const ends = own.filter((name, i) => i < left / 2 || i >= own.length - Math.floor(left / 2));
  const first = names.filter((name) => dashed.includes(name) || ends.includes(name));
  return { first, numbers: Object.fromEntries([...first, ...names.filter((name) => !first.includes(name))].map((name, i) => [name, i])) };
}

/// A panel whose x has names: a row for each, and its values to the right.
function drawRows(picture, { title, y_label: label, x_ticks: names, curves }, top, numbers) {
  const narrow = picture.width < width, // names are above their rows then
    step = narrow ? 36 : 24,
    left = narrow ? 6 : Math.min(380, 20 + 6.1 * Math.max(...names.map((name) => name.length))),
    bottom = top + 44 + names.length * step;
  const x = axis(0, 1.05 * Math.max(...curves.flatMap((c) => c.points.map(([, v]) => v))), left, picture.width - 10);
  picture.text(0, top + 14, title, narrow ? 'small bold' : 'bold');
  for (const tick of roundTicks(0, x.high)) {
    picture.line(x(tick), top + 30, x(tick), bottom, 'rule thin');
    picture.text(x(tick), bottom + 16, digits(tick), 'small mid soft');
  }
  picture.text(x.to, bottom + 32, label, 'small end soft');
  names.forEach((name, i) => picture.text(0, top + (narrow ? 48 : 58) + i * step, name, narrow && name.length > 40 ? 'tiny' : 'small'));
  const at = ([i, v]) => [x(v), top + (narrow ? 62 : 54) + i * step];
  curves.forEach(({ title: what, points }) => {
    if (!narrow) picture.curve(points.map(at), numbers[what], '');
    for (const point of points) drawMark(picture, ...at(point), numbers[what]);
    picture.say(`${title}, ${what}: ${points.map(([i, v]) => `${names[i]} ${digits(v, 3)}`).join(', ')}. `);
  });
  drawLegend(picture, 0, curves.map((curve, n) => bottom + 46 + 18 * n), curves.map(({ title: text }) => ({ text, number: numbers[text] })));
  return bottom + 58 + 18 * curves.length;
}

function drawPanel(picture, panel, top, numbers, low) {
  const {
    title, x_label: xLabel, y_label: yLabel, x_log: xLog, y_log: yLog, x_is_length: lengths, y_from_zero: fromZero,
    curves,
  } = panel;
  const all = curves.flatMap((c) => c.points), xs = all.map(([v]) => v), ys = all.map(([, v]) => v);
  const [xLow, xHigh] = [Math.min(...xs), Math.max(...xs)], [yLow, yHigh] = [Math.min(...ys), Math.max(...ys)];
  const narrow = picture.width < 500, small = picture.width < width, // its legend is below then; its plot is lower
    named = curves.filter(({ title }) => title).length, bottom = top + 36 + Math.max(small && !narrow ? 160 : low ? 220 : 280, narrow ? 0 : gap * named),
    right = picture.width - (narrow ? 16 : small ? 190 : 204),
    x = (xLog ? logAxis : axis)(xLog ? xLow / 1.1 : xLow, xLog ? xHigh * 1.1 : xHigh, small ? 40 : 62, right);
  const y = yLog
    ? logAxis(yLow / 1.2, yHigh * 1.2, bottom, top + 36)
    : axis(fromZero ? 0 : yLow - (yHigh - yLow) * 0.05, yHigh * 1.04, bottom, top + 36);
  title.split('\n').forEach((line, i) => picture.text(0, top + 14 + 15 * i, line, i > 0 ? 'small soft' : narrow ? 'small bold' : 'bold'));
  picture.text(
    title.includes('\n') ? x.to : 0, top + 30, yLabel, title.includes('\n') ? 'small end soft' : 'small soft',
  );
  const big = (v) => (v >= (narrow ? 1e5 : 1e6) ? v.toExponential(0).replace('e+', 'e') : digits(v));
  drawGrid(picture, x, y, {
    xTicks: lengths ? powers(small ? 4 : 2, x.low, x.high) : xLog ? powers(10, x.low, x.high) : roundTicks(x.low, x.high),
    yText: big, yTicks: yLog ? powers(10, y.low, y.high) : roundTicks(y.low, y.high),
  });
  picture.text(x.to, y.from + 34, xLabel, 'small end soft');
  const entries = [];
  let number; // a curve without a name belongs to the series before it
  for (const { title: name, style, form, points } of curves) {
    const placed = points.map(([px, py]) => [x(px), y(py)]), roof = style === 'roof', hollow = style === 'dashed' || form % 2 === 1;
    if (name) number = numbers[name];
    if (style !== 'points')
      picture.curve(placed, roof ? 7 : number, roof ? 'dashed' : style === 'line' ? '' : style === 'dashed' ? 'wide dashed' : 'wide');
    const marked = style === 'line' ? placed.slice(-1) : roof ? [] : placed;
    for (const [px, py] of marked) drawMark(picture, px, py, number, { hollow, size: 1 + 0.3 * (form >> 1) });
    if (!name) continue;
    entries.push({ y: placed.at(-1)[1] + 4, text: name, number: roof ? undefined : number, hollow });
    const told = points.length > 20 ? [points[0], points.at(-1)] : points;
    picture.say(
      `${title.split('\n')[0]}, ${name}: ${told.map(([px, py]) => `${digits(py, 3)} at ${digits(px, 4)}`).join(', ')}. `,
    );
  }
  drawEntries(picture, entries.sort((a, b) => a.y - b.y), narrow ? y.from + 54 : y, right);
  return y.from + (narrow ? 70 + gap * entries.length : 50);
}

/// One panel below the other, each with its curves' names beside their ends; on a phone below them.
export function drawPlot({ panels }, { wide = width, numbers = seriesOf({ panels }).numbers } = {}) {
  const picture = new Picture(wide);
  for (const panel of panels)
    picture.height = (panel.x_ticks?.length > 0 ? drawRows : drawPanel)(picture, panel, picture.height, numbers, panels.length > 1);
  return picture;
}

export function plot(facts) {
  const { first, numbers } = seriesOf(facts);
  const names = [...new Set(facts.panels.flatMap(({ curves }) => curves.map(({ title }) => title)))].filter(Boolean);
  const show = () => {
    let shown; // a curve without a name goes with the series before it
    const chosen = ({ title }) => (shown = title ? series.value.includes(title) : shown);
    const wanted = (panel) => ({ ...panel, curves: panel.curves.filter(chosen) });
    const panels = facts.panels.map(wanted).filter((panel) => panel.curves.length > 0);
    return { body: [drawPlot({ panels }, { wide: screenWidth(), numbers })], said: `${series.value.length} of ${names.length} series.` };
  };
  const series = checks({ label: 'Choose series', options: names, chosen: names.filter((name) => first.includes(name) || !(name in numbers)) });
  return frame(facts, { controls: [series], show });
}
