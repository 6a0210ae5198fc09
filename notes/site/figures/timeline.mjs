// What a block does between its barriers, interval by interval.
import { drawing, frame, h, list, slider, svg } from './parts.mjs';

export function timeline(facts) {
  const left = 112, width = 82, row = 26, top = 26;
  const body = h('div');
  const words = h('ul');
  const draw = (interval) => {
    const end = top + facts.lanes.length * row;
    const picture = drawing(left + facts.intervals * width, end + 8, 'Lanes of work over the intervals', left + facts.intervals * 62);
    picture.append(svg('rect', { class: 'now', x: left + interval * width, y: 2, width, height: end }));
    for (let i = 0; i < facts.intervals; ++i) {
      picture.append(svg('text', { x: left + (i + 0.5) * width, y: 16, class: i === interval ? 'axis bold' : 'axis' }, String(i)));
      if (i > 0) picture.append(svg('line', { class: 'barrier', x1: left + i * width, x2: left + i * width, y1: top - 6, y2: end }));
    }
    facts.lanes.forEach((lane, l) => {
      const y = top + l * row;
      picture.append(svg('text', { x: 0, y: y + 16, class: 'axis start' }, lane.name));
      for (const bar of lane.bars) {
        const here = bar.first <= interval && interval <= bar.last;
        const x = left + bar.first * width + 3, span = (bar.last - bar.first + 1) * width - 6;
        picture.append(svg('g', { class: `cell ${here ? 'chosen' : 'mate'}` },
          svg('rect', { x, y, width: span, height: row - 6, rx: 3 }),
          svg('text', { x: x + span / 2, y: y + 14 }, bar.text)));
      }
    });
    return picture;
  };
  const change = () => {
    const interval = now.value;
    body.replaceChildren(draw(interval));
    const running = facts.lanes.flatMap((lane) => lane.bars
      .filter((bar) => bar.first <= interval && interval <= bar.last)
      .map((bar) => ({ name: lane.name, ...bar })));
    words.replaceChildren(...running.map((bar) => h('li', {},
      `${bar.name}: ${bar.text}${bar.first === bar.last ? '' : `, from interval ${bar.first} to ${bar.last}`}`)));
    figure.querySelector('.said').textContent =
      `Interval ${interval} of ${facts.intervals}, between two barriers: ${list(running.map((bar) => bar.name)) || 'nothing'}.`;
  };
  const now = slider({ name: 'interval', label: 'Interval', low: 0, high: facts.intervals - 1, value: Math.min(1, facts.intervals - 1), change });
  const figure = frame(facts, { controls: [now], body: [body, words] });
  change();
  return figure;
}
