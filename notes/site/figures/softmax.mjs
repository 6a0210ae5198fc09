// Online softmax over one row: how many scores a block has, and step by step what m, the factor and l become.
import { drawing, frame, h, slider, svg } from './parts.mjs';

const digits = (value) => (value === null ? '−∞' : Number.isInteger(value) ? String(value) : value.toFixed(4));

export function softmax(facts) {
  const { scores } = facts, width = 60, base = 150, unit = 110 / Math.max(...scores);
  const body = h('div');
  const table = h('table');

  const draw = (steps, done) => {
    const picture = drawing(scores.length * width + 10, base + 24, 'The scores of one row, and the maximum so far');
    const step = done > 0 ? steps[done - 1] : undefined;
    scores.forEach((score, i) => {
      const state = step === undefined || i >= step.last ? 'other' : i >= step.first ? 'chosen' : 'mate';
      const x = 8 + i * width, height = Math.max(score * unit, 1);
      picture.append(svg('g', { class: `cell ${state}` },
        svg('rect', { x, y: base - height, width: width - 14, height }),
        svg('text', { x: x + (width - 14) / 2, y: base + 16, class: 'axis' }, String(score))));
    });
    if (step !== undefined)
      picture.append(svg('line', { class: 'level', x1: 2, x2: scores.length * width + 6, y1: base - step.m * unit, y2: base - step.m * unit }),
        svg('text', { x: scores.length * width + 4, y: base - step.m * unit - 5, class: 'axis end' }, `m = ${digits(step.m)}`));
    return picture;
  };

  const change = () => {
    const { steps } = facts.walks[block.value - 1];
    done.set(Math.min(done.value, steps.length), steps.length);
    body.replaceChildren(draw(steps, done.value));
    table.replaceChildren(
      h('thead', {}, h('tr', {}, ['scores', 'm', 'factor for l and O', 'this block adds', 'l'].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, steps.slice(0, done.value).map((step) =>
        h('tr', {}, [scores.slice(step.first, step.last).join(', '), digits(step.m), digits(step.factor), digits(step.added), digits(step.l)]
          .map((text) => h('td', {}, text))))));
    const last = steps.at(done.value - 1);
    figure.querySelector('.said').textContent =
      done.value === 0 ? 'Nothing has been read: m is −∞, l is 0.'
      : done.value < steps.length ? `After ${last.last} of ${scores.length} scores: m = ${digits(last.m)}, l = ${digits(last.l)}.`
      : `At the end m = ${digits(last.m)}, l = ${digits(last.l)} and LSE = m + log l = ${digits(facts.lse)}, whatever the ` +
        `blocks. The weights are ${facts.weights.map(digits).join(', ')}.`;
  };
  const block = slider({ name: 'block', label: 'Scores in a block', low: 1, high: scores.length, value: facts.block, change });
  const done = slider({ name: 'step', label: 'Blocks done', low: 0, high: facts.walks[facts.block - 1].steps.length, value: 1, change });
  const figure = frame(facts, { controls: [block, done], body: [body, table] });
  change();
  return figure;
}
