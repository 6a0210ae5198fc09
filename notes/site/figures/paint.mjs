// A picture: shapes and texts that say what they are for, as SVG. Their colours are classes, for a light and a dark
// page. The same text is a lesson's .svg and stands in a page, so nothing here needs a browser.

export const width = 700; // of a picture, in pixels of a page on which it is shown in full size
const margin = 10;

const light = {
  page: '#ffffff',
  ink: '#1c2024',
  soft: '#57606a',
  rule: '#8b949e',
  faint: '#eef1f4',
  chosen: '#f2b134',
  on: '#1c1400',
  pale: ['#cfe3fa', '#fde0b8', '#cdeccf', '#e3d9f7', '#f9d2d4', '#c9ecec', '#ece6b4', '#dfe2e6'],
  strong: ['#1f66b3', '#b45f06', '#1f7a34', '#6b4bb5', '#b3261e', '#0f7676', '#7d6f00', '#57606a'],
};
const dark = {
  page: '#0d1117',
  ink: '#e6edf3',
  soft: '#9aa4ae',
  rule: '#6e7681',
  faint: '#1b2129',
  chosen: '#8a5a00',
  on: '#ffffff',
  pale: ['#163a63', '#5a3a0a', '#174a22', '#3d2c6b', '#6a2426', '#124848', '#4a4408', '#333a42'],
  strong: ['#6cb0f5', '#f0a94e', '#5fcf78', '#b79cf2', '#ff8a80', '#4fd0d0', '#d8c94a', '#9aa4ae'],
};
export const colors = light.pale.length;

/// p0 … p7 are pale fills, on which texts can be read; s0 … are strokes and k0 … fills of the strong colours.
function colorRules(of, under = '') {
  const rules = {
    '.page': `fill:${of('page')}`,
    '.faint': `fill:${of('faint')}`,
    text: `fill:${of('ink')}`,
    '.soft': `fill:${of('soft')}`,
    '.rule': `stroke:${of('rule')}`,
    '.chosen': `fill:${of('chosen')}`,
    '.on': `fill:${of('on')}`,
    '.reversed': `fill:${of('page')}`,
  };
  for (let i = 0; i < colors; ++i) {
    rules[`.p${i}`] = `fill:${of('pale', i)}`;
    rules[`.s${i}`] = `stroke:${of('strong', i)}`;
    rules[`.k${i}`] = `fill:${of('strong', i)}`;
  }
  return Object.entries(rules)
    .map(([name, rule]) => `${under}${name}{${rule}}`)
    .join('');
}
const forms = (under = '') =>
  `${under}text{font:14px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}` +
  [
    '.small{font-size:12px}',
    '.tiny{font-size:10px}',
    '.mid{text-anchor:middle}',
    '.end{text-anchor:end}',
    '.bold{font-weight:600}',
    '.none{fill:none}',
    '.thin{stroke-width:.5}',
    '.wide{stroke-width:2}',
    '.dashed{stroke-dasharray:5 4}',
  ]
    .map((r) => under + r)
    .join('');
const plain = (palette) => (name, i) => (i === undefined ? palette[name] : palette[name][i]);
/// The rules of a page that holds pictures: its own color-scheme decides between light and dark.
export const pageStyle = () =>
  forms('.picture ') +
  '.picture [data-lane]{cursor:pointer}.picture text{pointer-events:none}' +
  colorRules((name, i) => `light-dark(${plain(light)(name, i)},${plain(dark)(name, i)})`, '.picture ');

const escaped = (text) =>
  String(text).replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
/// A tenth of a pixel is enough, and the same on every machine.
const px = (value) => String(Number(value.toFixed(1))).replace(/^-0$/, '0');
const path = (points) => points.map(([x, y]) => `${px(x)},${px(y)}`).join(' ');

export const pale = (color) => `p${color % colors}`;
export const tile = (color) => `${pale(color)} s${color % colors}`;

export class Picture {
  height = 0;
  said = ''; // the facts that it shows, in sentences, for somebody who does not see it
  #body = '';

  constructor(wide = width) { this.width = wide; }
  say(text) { this.said += text; }
  rect(x, y, w, h, names, { round = 0, data = '' } = {}) {
    this.#body += `<rect class="${names}" x="${px(x)}" y="${px(y)}" width="${px(w)}" height="${px(h)}"${
      round > 0 ? ` rx="${px(round)}"` : ''
    }${data && ` ${data}`}/>\n`;
  }
  line(x1, y1, x2, y2, names = 'rule') {
    this.#body += `<line class="${names}" x1="${px(x1)}" y1="${px(y1)}" x2="${px(x2)}" y2="${px(y2)}"/>\n`;
  }
  /// Through all points.
  curve(points, color, names = 'wide') {
    this.#body += `<polyline class="none s${color % colors}${names && ` ${names}`}" points="${path(points)}"/>\n`;
  }
  polygon(points, names) { this.#body += `<polygon class="${names}" points="${path(points)}"/>\n`; }
  /// Filled below the points down to `base`.
  area(points, base, color) { this.polygon([...points, [points.at(-1)[0], base], [points[0][0], base]], tile(color)); }
  dot(x, y, radius, names) {
    this.#body += `<circle class="${names}" cx="${px(x)}" cy="${px(y)}" r="${px(radius)}"/>\n`;
  }
  /// `y` is the line that the letters stand on. k3 among the names: in strong colour 3.
  text(x, y, text, names = '') {
    this.#body += `<text${names && ` class="${names}"`} x="${px(x)}" y="${px(y)}">${escaped(text)}</text>\n`;
  }
  /// What is drawn is named when it is pointed at.
  named(name, draw) {
    this.#body += `<g><title>${escaped(name)}</title>`;
    draw();
    this.#body += '</g>\n';
  }

  #svg(attributes, before) {
    const size = [px(this.width + 2 * margin), px(this.height + 2 * margin)];
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-${margin} -${margin} ${size.join(' ')}" width="${size[0]}" height="${size[1]}" ` +
      `role="img" ${attributes}>\n${before}${this.#body}</svg>`
    );
  }
  /// A file's text.
  file(title) {
    const size = `x="-${margin}" y="-${margin}" width="${px(this.width + 2 * margin)}" height="${px(this.height + 2 * margin)}"`;
    return (
      this.#svg(
        'aria-labelledby="title desc"',
        `<title id="title">${escaped(title)}</title>\n<desc id="desc">${escaped(this.said)}</desc>\n` +
          `<style>\n${forms()}\n${colorRules(plain(light))}\n@media (prefers-color-scheme:dark){\n${colorRules(plain(dark))}\n}\n</style>\n` +
          `<rect class="page" ${size}/>\n`,
      ) + '\n'
    );
  }
  /// What a page holds; pageStyle() colours it.
  inline(label) { return this.#svg(`class="picture" aria-label="${escaped(label)}"`, ''); }
}

/// An axis on which powers are equally far apart: values `low` to `high` at pixels `from` to `to`.
export const logAxis = (low, high, from, to) =>
  Object.assign((value) => from + ((to - from) * Math.log(value / low)) / Math.log(high / low), {
    low,
    high,
    from,
    to,
  });
export const axis = (low, high, from, to) =>
  Object.assign((value) => from + ((to - from) * (value - low)) / (high - low), { low, high, from, to });

// --- Words -------------------------------------------------------------------------------------------------------

/// At most six digits, or as many as are asked for.
export const digits = (value, most = 6) => String(Number(value.toPrecision(most)));
export const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;
export const list = (words) =>
  words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
/// "3.5 KiB", or with three digits.
export function bytes(value, text = (v) => v.toFixed(1)) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return unit === 0 ? `${value.toFixed(0)} B` : `${text(value)} ${units[unit]}`;
}
/// "0-3, 5"
export function ranges(numbers) {
  const runs = [];
  for (const n of numbers) {
    if (runs.length > 0 && runs.at(-1)[1] === n - 1) runs.at(-1)[1] = n;
    else runs.push([n, n]);
  }
  return runs.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(', ');
}
