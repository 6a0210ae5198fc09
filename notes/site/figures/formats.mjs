// Number formats: their bits, and where their numbers are over the sizes of gradients.
import { Picture, digits, pale, tile, width } from './paint.mjs';
import { frame, screenWidth, slider, table } from './parts.mjs';

const value = (x) => (x >= 0.01 && x < 1e6 ? digits(x) : x.toExponential(2));

const powerOf2 = (power) => `2${String(power).replace(/./g, (c) => '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'['-0123456789'.indexOf(c)])}`;

export function drawFormats({ formats }, wide = width) {
  const picture = new Picture(wide), narrow = wide < width, left = narrow ? 0 : 80, bit = narrow ? 8 : 19, tall = 20;
  const key = (at, color, text) => {
    picture.rect(left + at, 6, 12, 12, tile(color));
    picture.text(left + at + 18, 16, text, 'small');
  };
  key(0, 4, 'sign');
  key(60, 0, narrow ? 'exponent' : 'exponent: the range');
  key(narrow ? 150 : 270, 2, narrow ? 'mantissa' : 'mantissa: the precision');
  let y = narrow ? 44 : 28;
  for (const { name, exponent, mantissa, largest, smallest_normal: normal, smallest } of formats) {
    const bits = 1 + exponent + mantissa, sum = `1 + ${exponent} + ${mantissa} = ${bits} bits`;
    picture.text(0, narrow ? y - 4 : y + 15, name, 'bold');
    if (narrow) picture.text(54, y - 4, sum, 'small soft');
    for (let i = 0; i < bits; ++i)
      picture.rect(left + i * bit, y, bit, tall, tile(i === 0 ? 4 : i <= exponent ? 0 : 2));
    const ends = [`largest ${value(largest)}`, `smallest normal ${value(normal)}, smallest ${value(smallest)}`];
    if (narrow) ends.forEach((end, i) => picture.text(0, y + tall + 14 + 14 * i, end, 'tiny soft'));
    else picture.text(left, y + tall + 14, `${sum}; ${ends.join(', ')}`, 'small soft');
    picture.say(`${name}: ${sum}; ${ends.join(', ')}. `);
    y += narrow ? 76 : 48;
  }
  picture.height = y - (narrow ? 24 : 8);
  return picture;
}

/// How a format has numbers of about 2^power: what they are, and the distance from one to the next.
export function atPower({ mantissa, largest, smallest_normal: normal, smallest }, power) {
  const size = 2 ** power, spacing = 2 ** (Math.max(power, Math.log2(normal)) - mantissa);
  if (size > largest) return { state: 'too large', spacing: undefined };
  if (size < smallest) return { state: 'rounded to 0 or to the smallest number', spacing: smallest };
  return { state: size < normal ? 'subnormal' : 'normal', spacing };
}

export function formats(facts) {
  const show = () => {
    const all = facts.formats.map((format) => ({ name: format.name, ...atPower(format, power.value) }));
    const rows = all.map(({ name, state, spacing }) => [
      name, state, spacing === undefined ? '' : value(spacing), spacing === undefined ? '' : value(spacing / 2 ** power.value),
    ]);
    const has = all.filter(({ state }) => state === 'normal').map(({ name }) => name);
    const said = `At ${powerOf2(power.value)} = ${value(2 ** power.value)}: ${has.join(', ') || 'no format'} with full precision.`;
    return { body: [table(['Format', 'Numbers', 'Spacing', 'Relative'], rows), drawFormats(facts, screenWidth())], said };
  };
  const power = slider({ name: 'power', label: 'Magnitude', low: -50, high: 20, value: -10, text: powerOf2 });
  return frame(facts, { controls: [power], show });
}

export function drawRanges({ formats, over, tensors, lowest, rows, keys, d, gradient, tokens }) {
  // Powers of two from far below to far above; what reaches further is cut off and says so.
  const low = lowest, high = 40, left = 80, right = width - 10, row = 30, top = 46, hill = 74, picture = new Picture();
  const x = (power) => left + ((Math.max(low, Math.min(power, high)) - low) / (high - low)) * (right - left);
  const chosen = formats.find(({ name }) => name === over);
  const rangesEnd = top + formats.length * row, end = rangesEnd + 30 + tensors.length * hill;
  for (let power = -60; power <= high; power += 20) {
    picture.line(x(power), top - 8, x(power), end, 'rule thin');
    picture.text(x(power), top - 14, powerOf2(power), 'small mid soft');
  }
  picture.text(left, 14, 'Outlined: normal numbers; pale: subnormal ones. An arrow: the range continues.', 'small soft');
  let y = top;
  for (const format of formats) {
    const [smallest, normal, largest] = [format.smallest, format.smallest_normal, format.largest].map(Math.log2);
    picture.text(0, y + 15, format.name, format === chosen ? 'bold' : '');
    picture.rect(x(smallest), y + 2, x(normal) - x(smallest), 18, pale(0));
    picture.rect(x(normal), y + 2, x(largest) - x(normal), 18, tile(0));
    if (smallest < low) picture.text(left - 4, y + 15, '◀', 'small end');
    if (largest > high) picture.text(right - 12, y + 15, '▶', 'small');
    picture.say(
      `${format.name}: 2^${Math.round(smallest)} (normal from 2^${Math.round(normal)}) to ${value(format.largest)}. `,
    );
    y += row;
  }
  for (const bound of [chosen.smallest, chosen.largest])
    picture.line(x(Math.log2(bound)), top, x(Math.log2(bound)), end, 's4 dashed');
  y = rangesEnd + 24;
  tensors.forEach(({ name, bins, zero, all }, i) => {
    const base = y + hill - 12, most = Math.max(...bins);
    picture.area(
      bins.map((many, bin) => [x(lowest + bin + 0.5), base - Math.round(((hill - 26) * many) / most)]), base, i + 1,
    );
    picture.text(0, base - 22, name, 'bold');
    const lost = `${((100 * zero) / all).toFixed(1)} % zero in ${over}`;
    picture.text(x(Math.log2(chosen.largest)) + 8, base - 8, lost, `k${i + 1} small`);
    picture.say(`${name}: ${lost}. `);
    y += hill;
  });
  picture.text(x(Math.log2(chosen.smallest)) + 5, rangesEnd + 14, `${over}'s smallest number`, 'k4 small');
  picture.text(x(Math.log2(chosen.largest)) + 5, rangesEnd + 14, 'its largest', 'k4 small');
  picture.text(
    0,
    end + 18,
    `Computed for ${rows} rows of one head, ${keys} keys, d = ${d}: Q, K, V normal; dO normal, ${digits(gradient)} per token over ` +
      `${digits(tokens)} tokens.`,
    'small soft',
  );
  picture.height = end + 28;
  return picture;
}
