// Charts, by Observable Plot: the roofline with the reader's own results beside the book's, and the traffic over N.
import * as Plot from '@observablehq/plot';
import { choice, frame, h, slider } from './parts.mjs';
import { mount } from './mount.mjs';
import { readResults } from './results.mjs';

const style = { background: 'transparent', color: 'inherit', fontSize: '13px', overflow: 'visible' };
/// Plot names its groups of marks; only what has a role may have a name.
const plot = (options) => {
  const chart = Plot.plot({ ...options, style });
  for (const group of chart.querySelectorAll('g[aria-label]')) group.setAttribute('role', 'group');
  return chart;
};
const number = (value) => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));

/// The roof of a device, from one byte's work to much.
const roof = ({ tflops, tb_s }, low, high) => [low, tflops / tb_s, high].map((x) => ({ x, y: Math.min(x * tb_s, tflops) }));

/// One name for stages that lie too close to each other for two.
function labels(stages) {
  const near = (a, b) => Math.abs(Math.log(a.tflops / b.tflops)) < 0.12 && Math.abs(Math.log(a.flop_per_byte / b.flop_per_byte)) < 0.5;
  const groups = [];
  for (const stage of stages) {
    const group = groups.find(([first]) => near(first, stage));
    if (group) group.push(stage);
    else groups.push([stage]);
  }
  return groups.map((group) => ({ ...group[0], name: group.map((stage) => stage.name).join(', ') }));
}

function roofline(facts) {
  const body = h('div');
  let own = [];
  const change = () => {
    const stages = [
      ...facts.stages.map((stage) => ({ ...stage, whose: 'the book’s' })),
      ...own.map((stage) => ({ ...stage, whose: 'yours' })),
    ];
    const chosen = stage.value === 'all' ? stages : stages.filter((s) => s.name === stage.value);
    const low = 1, high = 20000;
    body.replaceChildren(plot({
      width: 640, height: 380, marginLeft: 50, marginBottom: 40, ariaLabel: facts.title,
      x: { type: 'log', domain: [low, high], label: 'FLOP for each byte of device memory', tickFormat: (v) => String(v), grid: true },
      y: { type: 'log', domain: [1, 2000], label: 'TFLOP/s', tickFormat: (v) => String(v), grid: true },
      symbol: { domain: ['the book’s', 'yours'], legend: own.length > 0 },
      marks: [
        Plot.line(roof(facts.data_sheet, low, high), { x: 'x', y: 'y', strokeDasharray: '4 4', clip: true }),
        Plot.line(roof(facts.measured, low, high), { x: 'x', y: 'y', strokeWidth: 2, clip: true }),
        Plot.dot(chosen, { x: 'flop_per_byte', y: 'tflops', symbol: 'whose', r: 5, stroke: 'var(--strong)', fill: 'var(--chosen)', title: 'name' }),
        Plot.text(labels(chosen), { x: 'flop_per_byte', y: 'tflops', text: 'name', textAnchor: 'end', dx: -9, stroke: 'var(--panel)', fill: 'currentColor', strokeWidth: 4 }),
      ],
    }));
    const ridge = facts.measured.tflops / facts.measured.tb_s;
    figure.querySelector('.said').textContent = chosen.map((s) =>
      `${s.name}${s.whose === 'yours' ? ' (yours)' : ''}: ${number(s.tflops)} TFLOP/s at ${number(s.flop_per_byte)} FLOP a byte, ` +
      `${number((100 * s.tflops) / Math.min(s.flop_per_byte * facts.measured.tb_s, facts.measured.tflops))} % of the measured roof`).join('; ') +
      `. The roof's corner is at ${number(ridge)}; dashed: the data sheet's.`;
  };
  const stage = choice({
    name: 'stage', label: 'Stage', value: 'all', change,
    options: [['all', 'all'], ...facts.stages.map((s) => [s.name, s.name])],
  });
  const message = h('span', { class: 'message', role: 'status' });
  const file = h('input', {
    id: `file-${facts.device}`.replace(/\W/g, '-'), type: 'file', accept: '.json', name: 'results',
    onchange: async () => {
      try {
        own = readResults(JSON.parse(await file.files[0].text()), facts);
        message.textContent = `${own.length} of your results are shown.`;
      } catch (error) {
        own = [];
        message.textContent = error.message;
      }
      change();
    },
  });
  const load = { element: h('div', { class: 'control' }, h('label', { for: file.id }, 'Your own results (bench --json)'), file, message) };
  const figure = frame(facts, { controls: [stage, load], body: [body] });
  change();
  return figure;
}

const bytes = (value) => {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  const power = Math.min(Math.floor(Math.log2(value) / 10), units.length - 1);
  return `${number(value / 1024 ** power)} ${units[power]}`;
};

function traffic(facts) {
  const body = h('div');
  const points = facts.curves.flatMap((curve) => facts.lengths.flatMap((length, i) => [
    { name: curve.name, length, bytes: curve.asked[i], what: 'asked for' },
    { name: curve.name, length, bytes: curve.least[i], what: 'at least' },
  ]));
  const change = () => {
    const i = at.value, length = facts.lengths[i];
    body.replaceChildren(plot({
      width: 640, height: 360, marginLeft: 70, marginBottom: 40, ariaLabel: facts.title,
      x: { type: 'log', base: 2, label: 'sequence length N', ticks: facts.lengths, tickFormat: (v) => String(v) },
      y: { type: 'log', base: 2, label: 'bytes of one head', tickFormat: bytes, ticks: 6, grid: true },
      marks: [
        Plot.ruleX([length], { stroke: 'var(--strong)' }),
        Plot.line(points.filter((p) => p.what === 'asked for'), { x: 'length', y: 'bytes', z: 'name', strokeWidth: 2 }),
        Plot.line(points.filter((p) => p.what === 'at least'), { x: 'length', y: 'bytes', z: 'name', strokeDasharray: '4 4' }),
        Plot.dot(points, { x: 'length', y: 'bytes', r: (p) => (p.length === length ? 5 : 2.5), fill: 'var(--strong)' }),
        Plot.text(facts.curves, { x: () => facts.lengths.at(-1), y: (c) => c.asked.at(-1), text: 'name', textAnchor: 'end', dy: -12, stroke: 'var(--panel)', fill: 'currentColor', strokeWidth: 4 }),
      ],
    }));
    figure.querySelector('.said').textContent = `At N = ${length}: ${facts.curves.map((c) =>
      `${c.name} asks for ${bytes(c.asked[i])}, at least ${bytes(c.least[i])} must move`).join('; ')}. Dashed: at least.`;
  };
  const at = slider({
    name: 'length', label: 'Sequence length N', low: 0, high: facts.lengths.length - 1, value: facts.lengths.length - 1,
    text: (i) => String(facts.lengths[i]), change,
  });
  const figure = frame(facts, { controls: [at], body: [body] });
  change();
  return figure;
}

mount({ roofline, traffic });
