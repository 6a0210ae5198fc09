// Pairs that share a counter of the random number generator: in one lane of S, in one lane of its transpose.
import { Picture } from './paint.mjs';
import { frame, items, slider } from './parts.mjs';

const names = ['S', 'Sᵀ'], words = ['x', 'y', 'z', 'w'];

/// The lane that has the pairs with this query and this key modulo 8, and its 32 pairs: bit b of its mask is pair b.
export function held({ places, bytes }, query, key, transposed) {
  const at = transposed ? [key, query] : [query, key], shares = ([row, column]) => row % 8 === at[0] && column === at[1];
  const lane = places.findIndex((of) => of.some(shares));
  const pairs = Array.from({ length: 32 }, (_, bit) => {
    const place = places[lane][bit % 4], row = 16 * (bit >> 4) + place[0], column = 8 * ((bit >> 2) % 4) + place[1];
    return { row, column, byte: transposed ? bytes[column][row] : bytes[row][column], shares: shares(place) };
  });
  return { lane, pairs, elements: [0, 1, 2, 3].filter((e) => shares(places[lane][e])) };
}

export function drawDropout(facts, { query = 0, key = 1, dropped = facts.dropped } = {}) {
  const picture = new Picture(), cell = 8.3, wide = 70, top = 56;
  names.forEach((name, n) => {
    const { lane, pairs, elements } = held(facts, query, key, n === 1), left = wide + n * 362;
    const [down, across] = n === 0 ? ['query', 'key'] : ['key', 'query'];
    const text = `${name}: lane ${lane}, elements ${elements.join(' and ')} of each part`;
    picture.text(left - wide, 16, text, 'bold');
    picture.say(`${text} have query % 8 = ${query} and key % 8 = ${key}. `);
    picture.text(left - wide, top - 24, `${down} ↓`, 'small soft');
    picture.text(left, top - 24, `${across} →`, 'small soft');
    picture.rect(left, top, 32 * cell, 32 * cell, 'faint rule');
    for (let part = 0; part < 4; ++part) {
      const of = (what) => (what === 'query' ? `word ${words[part]}` : `byte ${part}`);
      picture.text(left + (8 * part + 4) * cell, top - 8, `${8 * part}: ${of(across)}`, 'tiny mid soft');
      picture.text(left - wide, top + (8 * part + 4.5) * cell, `${8 * part}: ${of(down)}`, 'small soft');
      picture.line(left + 8 * part * cell, top, left + 8 * part * cell, top + 32 * cell, 'rule thin');
      picture.line(left, top + 8 * part * cell, left + 32 * cell, top + 8 * part * cell, 'rule thin');
    }
    for (const { row, column, shares } of pairs)
      picture.rect(left + column * cell, top + row * cell, cell, cell, shares ? 'chosen s4' : 'p0 s0', { data: `data-pair="${row},${column}"` });
    facts.bytes.forEach((of, i) => of.forEach((byte, j) => {
      const [row, column] = n === 0 ? [i, j] : [j, i];
      if (byte < dropped) picture.dot(left + (column + 0.5) * cell, top + (row + 0.5) * cell, 2.5, 'k7');
    }));
  });
  const y = top + 32 * cell + 12;
  picture.rect(0, y, 12, 12, 'chosen s4');
  picture.text(18, y + 11, `query % 8 = ${query}, key % 8 = ${key}`, 'small');
  picture.rect(200, y, 12, 12, 'p0 s0');
  picture.text(218, y + 11, "the lane's other pairs", 'small');
  picture.dot(390, y + 6, 3, 'k7');
  picture.text(400, y + 11, `dropped: byte < ${dropped}; seed ${facts.seed}, head 0, first block`, 'small');
  picture.height = y + 16;
  return picture;
}

export function dropout(facts) {
  const show = () => {
    const chosen = { query: query.value, key: key.value, dropped: dropped.value }, all = facts.bytes.flat();
    const lines = items(names.map((name, n) => {
      const { lane, pairs } = held(facts, chosen.query, chosen.key, n === 1);
      const kept = pairs.reduce((mask, { byte }, bit) => (byte < chosen.dropped ? mask : mask + 2 ** bit), 0);
      return `${name}: kept_pairs<${n === 1}> of lane ${lane} is 0x${kept.toString(16).padStart(8, '0')}.`;
    }));
    const said = `dropped = ${chosen.dropped}: ${all.filter((byte) => byte < chosen.dropped).length} of ${all.length} pairs of the block are dropped.`;
    return { body: [drawDropout(facts, chosen), lines], said };
  };
  const modulo = (name, value) => slider({ name, label: `${name} modulo 8`, low: 0, high: 7, value });
  const query = modulo('query', 0), key = modulo('key', 1);
  const dropped = slider({ name: 'dropped', label: 'dropped', low: 0, high: 255, value: facts.dropped });
  return frame(facts, { controls: [query, key, dropped], show });
}
