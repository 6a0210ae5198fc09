// The algorithm itself: a tile moves over S, and m, l and O of its rows change with it.
import { Picture, digits, list, tile, width } from './paint.mjs';
import { frame, items, screenWidth, slider } from './parts.mjs';

const two = (value) => (value === null ? '−∞' : value.toFixed(2).replace('-', '−'));

/// After `done` tiles, in a rectangle whose upper left corner is (left, top): S and its tile, and m, l and O beside or
/// `below` it. Returns its height.
function drawStep(picture, { S, V, Bc, steps }, done, left, top, cell, below = false) {
  const rows = S.length, keys = S[0].length, columns = V[0].length, now = done - 1, step = steps[now];
  const small = cell < 30 ? 'tiny' : 'small', x = (key) => left + 18 + key * cell, y = (row) => top + 46 + row * cell;
  picture.text(
    left, top + 12, done === 0 ? 'Before the first tile' : `Tile ${now}: keys ${now * Bc} to ${now * Bc + Bc - 1}`,
    'bold small',
  );
  for (let j = 0; j < keys; j += Bc) {
    const here = j === now * Bc;
    picture.rect(x(j) + 1, top + 24, Bc * cell - 2, 16, here ? tile(1) : 'faint', { round: 2 });
    picture.text(x(j + Bc / 2), top + 36, `K V ${j / Bc}`, here ? 'tiny mid bold' : 'tiny mid soft');
  }
  S.forEach((scores, i) => {
    picture.text(left, y(i) + cell / 2 + 4, i, 'tiny soft');
    scores.forEach((score, j) => {
      const state = Math.floor(j / Bc) - now;
      picture.rect(x(j), y(i), cell, cell, state === 0 && done > 0 ? tile(1) : state < 0 ? tile(0) : 'faint rule', {
        data: `data-tile="${Math.floor(j / Bc)}"`,
      });
      if (state <= 0 && done > 0)
        picture.text(x(j + 0.5), y(i) + cell / 2 + 4, digits(score, 2), `${small} mid${state < 0 ? ' soft' : ''}`);
    });
  });
  const place = below ? x(0) : x(keys) + 16, down = below ? rows * cell + 30 : 0, names = ['m', 'l', ...V[0].map((_, c) => `O[${c}]`)], gap = cell < 30 ? 37 : 56;
  names.forEach((name, n) => picture.text(place + (n + 0.5) * gap, top + 36 + down, name, `${small} mid bold`));
  S.forEach((_, i) => {
    const grows = done > 0 && (now === 0 || step.m[i] > steps[now - 1].m[i]);
    const of = done === 0 ? [null, 0, ...V[0].map(() => 0)] : [step.m[i], step.l[i], ...step.O[i]];
    if (below) picture.text(left, y(i) + cell / 2 + 4 + down, i, 'tiny soft');
    of.forEach((value, n) =>
      picture.text(
        place + (n + 0.5) * gap, y(i) + cell / 2 + 4 + down, two(value), `${small} mid${n === 0 && grows ? ' k4 bold' : ''}`,
      ),
    );
  });
  picture.rect(place, top + 42 + down, (columns + 2) * gap, rows * cell + 6, 'none rule', { round: 4 });
  return 46 + rows * cell + 8 + down;
}

export function drawAlgorithm(facts, { done, wide = width } = {}) {
  const picture = new Picture(wide), narrow = wide < 500, cellSize = wide < width ? 30 : 40;
  if (done !== undefined) {
    picture.height = 4 + drawStep(picture, facts, done, wide < width ? 0 : 40, 4, cellSize, narrow);
    return picture;
  }
  let bottom = 0;
  const cell = 19, columns = 2;
  facts.steps.forEach((step, n) => {
    const left = (n % columns) * (width / columns + 4),
      top = 4 + Math.floor(n / columns) * (facts.S.length * cell + 76);
    bottom = top + drawStep(picture, facts, n + 1, left, top, cell);
    picture.say(
      `After tile ${n}: m = ${step.m.map(two).join(', ')}; l = ${step.l.map(two).join(', ')}; O = ${step.O.map((row) => `(${row.map(two).join(', ')})`).join(', ')}. `,
    );
  });
  [
    'S has a row for each query. Orange: the tile in fast memory, with its keys and values.',
    'Blue: computed, never stored. Red: the maximum m of the row has grown, so its l and O so far are',
    'multiplied by exp(old m − new m) before the tile is added. At the end, each row of O is divided',
    'by its l: that is attention.',
  ].forEach((line, i) => picture.text(0, bottom + 18 + 17 * i, line, 'small soft'));
  picture.say('At the end a row of O is divided by its l.');
  picture.height = bottom + 77;
  return picture;
}

export function algorithm(facts) {
  const show = () => {
    const done = at.value, step = facts.steps[done - 1], before = facts.steps[done - 2];
    if (done === 0) return { body: [drawAlgorithm(facts, { done, wide: screenWidth() })], said: 'Nothing has been read: every m is −∞, every l and O is 0.' };
    const words = items(
      facts.S.map((scores, i) => {
        const factor = before ? Math.exp(before.m[i] - step.m[i]) : 0,
          tileScores = scores.slice((done - 1) * facts.Bc, done * facts.Bc);
        const grows = !before || step.m[i] > before.m[i];
        const moves = !before
          ? `m becomes ${two(step.m[i])}`
          : grows
            ? `m grows to ${two(step.m[i])}, so l and O so far are multiplied by ${factor.toFixed(4)}`
            : `m stays ${two(step.m[i])}`;
        return (
          `Row ${i}: ${moves}; ` +
          `the tile adds ${list(tileScores.map((s) => `exp(${digits(s)} − ${two(step.m[i])})`))} to l, and the same weights times rows of V to O.`
        );
      }),
    );
    const all = (name) => step[name].map((value) => value.toFixed(2)).join(', ');
    const said =
      `After ${done} of ${facts.steps.length} tiles: m = ${all('m')}; l = ${all('l')}.` +
      (done < facts.steps.length
        ? ''
        : ` O / l is attention: ${step.O.map((row, i) => `(${row.map((o) => two(o / step.l[i])).join(', ')})`).join(', ')}.`);
    return { body: [drawAlgorithm(facts, { done, wide: screenWidth() }), words], said };
  };
  const at = slider({ name: 'step', label: 'Tiles done', low: 0, high: facts.steps.length, value: 2, play: true });
  return frame(facts, { controls: [at], show });
}
