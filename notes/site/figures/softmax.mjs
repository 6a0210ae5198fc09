// The running maximum and sum of one row, block by block, with blocks of a length of one's choice.
import { Picture, digits, tile, width } from './paint.mjs';
import { frame, screenWidth, slider, table } from './parts.mjs';

const four = (value) => (value === null ? '−∞' : Number.isInteger(value) ? String(value) : value.toFixed(4));

/// `done` blocks of `block` scores.
export function drawSoftmax(facts, { block = facts.block, done, space = width } = {}) {
  const { scores } = facts, { steps } = facts.passes[block - 1], read = done ?? steps.length;
  const short = space < width, left = short ? 84 : 110, base = 190, unitTop = 40;
  const picture = new Picture(Math.max(space, left + 40 * steps.length)), wide = (picture.width - left) / steps.length, unit = (base - unitTop) / Math.max(...scores), roomy = wide > 120;
  picture.text(0, 20, 'scores', 'bold');
  picture.text(0, 40, 'running', 'k4 small');
  picture.text(0, 55, 'maximum m', 'k4 small');
  steps.forEach(({ first, last, m, factor, added, l }, b) => {
    const x = left + b * wide, middle = x + wide / 2, before = b === 0 ? undefined : steps[b - 1];
    picture.rect(x + 4, 24, wide - 8, base - 24, 'faint', { round: 4 });
    picture.text(middle, 16, roomy ? `block ${b}` : b, 'small mid soft');
    const bar = Math.min(48, (wide - (roomy ? 40 : 20)) / block - (roomy ? 10 : 2)), gap = roomy ? 10 : 2;
    for (let i = first; i < last; ++i) {
      const at = middle + (i - first - (last - first) / 2) * (bar + gap) + gap / 2, tall = scores[i] * unit;
      picture.rect(at, base - tall, bar, tall, b < read ? tile(b) : 'faint rule');
      picture.text(at + bar / 2, base - tall - (tall < 14 ? 4 : -14), digits(scores[i]), 'small mid');
    }
    if (b >= read) return;
    picture.line(x + 4, base - m * unit, x + wide - 4, base - m * unit, 's4 wide');
    picture.text(middle, base + 26, digits(m), 'mid');
    const words = roomy ? 'small mid' : 'tiny mid';
    const scale = before ? factor.toFixed(4) : '0', power = before ? `exp(${digits(before.m)} - ${digits(m)})` : 'exp(-inf)';
    picture.text(middle, base + 52, roomy ? `${power} = ${scale}` : scale, words);
    picture.text(middle, base + 78, added.toFixed(4), roomy ? 'mid' : words);
    if (wide > 155)
      picture.text(middle, base + 104, `${(before?.l ?? 0).toFixed(4)} x ${factor.toFixed(4)} + ${added.toFixed(4)}`, words);
    picture.text(middle, base + 124, `= ${l.toFixed(4)}`, roomy ? 'mid bold' : 'tiny mid bold');
    picture.say(`After block ${b}: m = ${digits(m)}, factor ${factor.toFixed(4)}, l = ${l.toFixed(4)}. `);
  });
  for (const [y, text] of [[26, 'm'], [52, short ? 'factor' : 'factor for l and O'], [78, short ? 'added' : 'added by this block'], [104, 'l']])
    picture.text(0, base + y, text, 'small');
  picture.line(0, base + 136, picture.width, base + 136, 'rule thin');
  const { m, l } = steps.at(-1);
  const end = `In one pass: m = ${digits(m)}, l = ${l.toFixed(4)}. LSE = ${digits(m)} + log ${l.toFixed(4)} = ${facts.lse.toFixed(4)}.`;
  (short ? end.split(/(?<=\.) /) : [end]).forEach((text, i) => picture.text(0, base + 156 + 16 * i, text, 'small'));
  picture.say(end);
  picture.height = base + (short ? 182 : 166);
  return picture;
}

export function softmax(facts) {
  const show = () => {
    const { steps } = facts.passes[block.value - 1];
    done.set(Math.min(done.value, steps.length), steps.length);
    const rows = steps.slice(0, done.value).map((step) => [
      facts.scores.slice(step.first, step.last).join(', '), ...[step.m, step.factor, step.added, step.l].map(four),
    ]);
    const last = steps.at(done.value - 1);
    const said =
      done.value === 0
        ? 'Nothing has been read: m is −∞, l is 0.'
        : done.value < steps.length
          ? `After ${last.last} of ${facts.scores.length} scores: m = ${four(last.m)}, l = ${four(last.l)}.`
          : `At the end m = ${four(last.m)}, l = ${four(last.l)} and LSE = m + log l = ${four(facts.lse)}, whatever the ` +
            `blocks. The weights are ${facts.weights.map(four).join(', ')}.`;
    return { body: [drawSoftmax(facts, { block: block.value, done: done.value, space: screenWidth() }), table(['scores', 'm', 'factor', 'added', 'l'], rows)], said };
  };
  const block = slider({
    name: 'block', label: 'Scores in a block', low: 1, high: facts.scores.length, value: facts.block,
  });
  const done = slider({
    name: 'step', label: 'Blocks done', low: 0, high: facts.passes[facts.block - 1].steps.length,
    value: facts.passes[facts.block - 1].steps.length,
  });
  return frame(facts, { controls: [block, done], show });
}
