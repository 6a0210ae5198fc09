// Boxes, arrows and words from a text in columns of equal width: the character of each cell says what is drawn there.
import { Picture, colors, tile, width } from './paint.mjs';

const tall = 20; // a cell, in pixels
/// Which edges of its cell a line reaches: up, right, down, left.
const arms = {
  '─': 'rl', '│': 'ud', '╎': 'ud', '┌': 'rd', '┐': 'dl', '└': 'ur', '┘': 'ul',
  '├': 'urd', '┤': 'udl', '┬': 'rdl', '┴': 'url', '┼': 'urdl',
};
const heads = { '▶': [1, 0], '◀': [-1, 0], '▼': [0, 1], '▲': [0, -1] };
const marks = { '■': tile(0), '◩': tile(1), '□': 'faint rule thin' };
/// Words that belong together are one space apart.
const word = `[^\\s${Object.keys({ ...arms, ...heads, ...marks }).join('')}]+`;
const phrases = new RegExp(`${word}( ${word})*`, 'g');
const reaches = (character, arm) => arms[character]?.includes(arm);

/// [row, column, last row, last column] of the smallest box whose upper left corner is here, if there is one.
function boxAt(cells, row, column) {
  const at = (y, x) => cells[y]?.[x];
  if (!reaches(at(row, column), 'r') || !reaches(at(row, column), 'd')) return undefined;
  for (let right = column + 1; reaches(at(row, right), 'l'); ++right) {
    if (!reaches(at(row, right), 'd')) continue;
    for (let last = row + 1; reaches(at(last, column), 'u') && reaches(at(last, right), 'u'); ++last) {
      if (!reaches(at(last, column), 'r') || !reaches(at(last, right), 'l')) continue;
      const closed = cells[last].slice(column + 1, right).every((c) => reaches(c, 'l') && reaches(c, 'r'));
      return closed ? [row, column, last, right] : undefined;
    }
  }
  return undefined;
}

/// The lines and the arrow of one cell; straight lines and arrows end at the line that they meet.
function drawCell(picture, cells, i, j, x, y) {
  const character = cells[i][j], straight = '─│╎'.includes(character), names = character === '╎' ? 'rule dashed' : 'rule';
  const beside = (dx, dy) => cells[i + dy]?.[j + dx], joins = (dx, dy) => beside(dx, dy) in arms;
  for (const [arm, dx, dy, against] of [['u', 0, -1, 'd'], ['r', 1, 0, 'l'], ['d', 0, 1, 'u'], ['l', -1, 0, 'r']]) {
    const far = straight && joins(dx, dy) && !reaches(beside(dx, dy), against) ? 1 : 0.5;
    if (reaches(character, arm)) picture.line(x(j), y(i), x(j + far * dx), y(i + far * dy), names);
  }
  if (!(character in heads)) return;
  const [dx, dy] = heads[character], far = joins(dx, dy) ? 1 : 0.5, tip = [x(j + far * dx), y(i + far * dy)];
  if (joins(-dx, -dy)) picture.line(x(j - dx / 2), y(i - dy / 2), ...tip);
  const corner = (side) => [tip[0] - 8 * dx + 4 * side * dy, tip[1] - 8 * dy + 4 * side * dx];
  picture.area([corner(-1), tip, corner(1)], tip[1] - 8 * dy, 7);
}

const cellsOf = (text) => text.replace(/\n$/, '').split('\n').map((line) => [...line]);
const columnsOf = (cells) => Math.max(...cells.map((row) => row.length));

/// For a phone, a narrower drawing, or two that are four columns apart, one below the other; undefined: neither fits.
export function drawStacked({ text }) {
  const cells = cellsOf(text), columns = columnsOf(cells), least = Math.ceil(0.35 * columns);
  if (columns <= 50) return drawDiagram({ text }, { wide: Math.min(8, 304 / columns) });
  const at = cells[0].findIndex((_, j) => j >= least && j + 4 + least <= columns && cells.every((row) => row.slice(j, j + 4).join('').trim() === ''));
  const halves = [cells.map((row) => row.slice(0, at).join('').trimEnd()), cells.map((row) => row.slice(at).join('').trimEnd())];
  const indent = Math.min(...halves[1].filter(Boolean).map((row) => row.search(/\S/)));
  const all = cellsOf(`${halves[0].join('\n').trimEnd()}\n\n${halves[1].map((row) => row.slice(indent)).join('\n').trimEnd()}`);
  if (at < 0 || columnsOf(all) > 52 || !halves.every((half) => /[─│■□]/.test(half))) return undefined;
  return drawDiagram({ text: all.map((row) => row.join('')).join('\n') }, { wide: Math.max(6.1, Math.min(8, 304 / columnsOf(all))) });
}

export function drawDiagram({ text }, { wide = Math.min(8, width / columnsOf(cellsOf(text))) } = {}) {
  const cells = cellsOf(text), columns = columnsOf(cells);
  const picture = new Picture(columns * wide), x = (column) => (column + 0.5) * wide, y = (row) => (row + 0.5) * tall;
  const say = (at, row, words, centred) => {
    picture.text(at, y(row) + 4, words, `small${centred ? ' mid' : ''}`);
    picture.say(`${words}. `);
  };
  const boxes = cells.flatMap((row, i) => row.map((_, j) => boxAt(cells, i, j)).filter(Boolean));
  for (const [top, left, bottom, right] of boxes) {
    const inside = cells.slice(top + 1, bottom).flatMap((row) => row.slice(left + 1, right)).join('').trim();
    const [fill] = (marks[inside] ?? (inside ? tile(0) : 'none')).split(' ');
    picture.rect(x(left), y(top), x(right) - x(left), y(bottom) - y(top), fill);
  }
  const boxOf = (i, j) => boxes.find(([top, left, bottom, right]) => top < i && i < bottom && left < j && j < right);
  let lanes = 0;
  cells.forEach((row, i) => {
    // [ a bar ]: all bars of a row have one colour.
    const line = row.join('').replace(/(?<=^|[ \]])\[([^\]]*)(\]|$)/g, (bar, words, end, at) => {
      picture.rect(at * wide + 1, y(i) - 8, bar.length * wide - 2, 17, tile(lanes % colors), { round: 3 });
      say((at + bar.length / 2) * wide, i, words.trim(), true);
      return ' '.repeat(bar.length);
    });
    if (line !== row.join('')) ++lanes;
    row.forEach((character, j) => {
      drawCell(picture, cells, i, j, x, y);
      if (!(character in marks) || boxOf(i, j)) return;
      const size = row[j - 1] in marks || row[j + 1] in marks ? wide - 1 : 12;
      picture.rect(x(j) - size / 2, y(i) - 6, size, 12, marks[character], { round: 2 });
    });
    for (const { index, 0: words } of line.matchAll(phrases)) {
      const length = words.length, between = (row[index - 1] ?? ' ') !== ' ' && (row[index + length] ?? ' ') !== ' ';
      const [, left, , right] = boxOf(i, index) ?? [];
      const alone = left !== undefined && row.slice(left + 1, right).join('').trim() === words;
      if (alone) say((x(left) + x(right)) / 2, i, words, true);
      else if (length < 4 || between) say((index + length / 2) * wide, i, words, true);
      else say(index * wide, i, words, false);
    }
  });
  picture.height = cells.length * tall;
  return picture;
}
