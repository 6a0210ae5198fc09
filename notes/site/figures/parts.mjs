// What figures to touch are put together from: elements, controls, a frame. A figure gets its facts and makes none.
import { Picture, width } from './paint.mjs';

/// An element: attributes, `on…` listeners, children (elements or text).
export function h(tag, attributes = {}, ...children) { return fill(document.createElement(tag), attributes, children); }
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child || child === 0));
  return element;
}

let controls = 0;

/// A slider over whole numbers with its value beside it; `text` says the value in words. With `play`, a button moves it
/// by one step a second up to its end, where it begins again.
export function slider({ name, label, low, high, step = 1, value, text = String, play = false, change }) {
  const id = `control-${++controls}`;
  const output = h('output', { for: id }, text(value));
  const input = h('input', {
    id, name, type: 'range', min: low, max: high, step, value,
    oninput: () => {
      set(input.value);
      change?.();
    },
  });
  input.setAttribute('aria-valuetext', text(value));
  const set = (next, most = input.max) => {
    input.max = most;
    input.value = next;
    output.textContent = text(Number(input.value));
    input.setAttribute('aria-valuetext', output.textContent);
  };
  const atEnd = () => Number(input.value) >= Number(input.max);
  let timer;
  const pause = () => {
    timer = clearInterval(timer);
    button.textContent = 'Play';
  };
  const moveTo = (next) => {
    input.value = next;
    input.dispatchEvent(new Event('input', { bubbles: true }));
  };
  const advance = () => {
    moveTo(Number(input.value) + step);
    if (atEnd()) pause();
  };
  const start = () => {
    if (atEnd()) moveTo(low);
    timer = setInterval(advance, 1000);
    button.textContent = 'Pause';
  };
  const button = h('button', { type: 'button', title: label, onclick: () => (timer ? pause() : start()) }, 'Play');
  const parts = [h('label', { for: id }, label), h('span', { class: 'value' }, input, output, play && button)];
  return {
    element: h('div', { class: 'control' }, parts),
    get value() { return Number(input.value); },
    set,
  };
}

/// Any number of `options`, of which those in `chosen` are so at first.
export function checks({ label, options, chosen, change }) {
  const boxes = options.map((option) => h('input', { type: 'checkbox', value: option, checked: chosen.includes(option), onchange: change }));
  return {
    element: h('details', {}, h('summary', {}, label), boxes.map((box) => h('label', {}, box, ` ${box.value} `))),
    get value() { return boxes.filter((box) => box.checked).map((box) => box.value); },
  };
}

/// A choice of one of [value, text].
export function choice({ name, label, options, value, change }) {
  const id = `control-${++controls}`;
  const select = h(
    'select', { id, name, onchange: change },
    options.map(([key, text]) => h('option', { value: key, selected: String(key) === String(value) }, text)),
  );
  return {
    element: h('div', { class: 'control' }, h('label', { for: id }, label), select),
    get value() { return select.value; },
    set(next) { select.value = next; },
  };
}

/// How wide a drawing may be that has smaller forms: on a phone, and on a tablet or the start page.
export const screenWidth = () => (innerWidth < 620 ? 260 : innerWidth < 832 || document.querySelector('main.start') ? 500 : width);

/// A picture in a page: where the page is narrower, it scrolls, so that its texts stay legible.
export function shown(picture, label) {
  const place = h('div', { class: 'shown' });
  place.innerHTML = picture.inline(label);
  return place;
}

/// What is wider than its place says that it continues.
export function sayContinues(element) {
  const say = () => element.classList.toggle('continues', element.scrollWidth > element.clientWidth + 1);
  new ResizeObserver(say).observe(element);
  return element;
}

/// A list of texts.
export const items = (texts) => h('ul', {}, texts.map((text) => h('li', {}, text)));

/// A table of texts, with the names of its columns.
export function table(names, rows) {
  const line = (tag, attributes, texts) => h('tr', {}, texts.map((text) => h(tag, attributes, text)));
  return h('table', {}, h('thead', {}, line('th', { scope: 'col' }, names)), h('tbody', {}, rows.map((row) => line('td', {}, row))));
}

/// The figure's frame: its controls, and what show() returns whenever one of them changes: {body: pictures and elements,
/// said: a sentence that says what is to be seen}.
export function frame(facts, { controls: all, show }) {
  const body = sayContinues(h('div', { class: 'body', tabindex: 0, role: 'group', 'aria-label': 'Drawing' }));
  const said = h('p', { class: 'said', role: 'status' });
  const update = () => {
    const shows = show();
    body.replaceChildren(...shows.body.map((part) => (part instanceof Picture ? shown(part, facts.title) : part)));
    said.textContent = shows.said;
  };
  update();
  return h(
    'section', { class: 'touch', 'data-kind': facts.kind, 'aria-label': `${facts.title}: to try`, oninput: update, onchange: update },
    h('div', { class: 'controls' }, all.map((control) => control.element)), body, said,
  );
}
