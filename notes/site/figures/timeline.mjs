// What a block does, over its time: lanes of work between its barriers, and who waits for whom.
import { Picture, count, pale, ranges, tile, width } from './paint.mjs';
import { frame, items, screenWidth, slider } from './parts.mjs';

const laneColors = { copied: 1, loaded: 0, stored: 6, products: 2, shared: 3, shuffles: 5 };
const fromTo = ({ first, last }) => (first === last ? `${first}` : `${first} to ${last}`);

/// Bars that overlap go below one another: the bars of each row.
function rowsOf(bars) {
  const rows = [];
  for (const bar of [...bars].sort((a, b) => a.first - b.first)) {
    const row = rows.find((of) => of.at(-1).last < bar.first);
    if (row) row.push(bar);
    else rows.push([bar]);
  }
  return rows;
}

/// Of facts.lanes, the intervals `first` to `first + count`; `now` is marked.
export function drawTimeline(facts, { first = facts.first, count: wanted = facts.count, now, space = width } = {}) {
  const left = 108, top = 56, row = 27, end = Math.min(first + wanted, facts.intervals);
  const picture = new Picture(space), wide = (space - left - 4) / (end - first), short = space < width,
    x = (interval) => left + (interval - first) * wide;
  picture.text(0, 16, `${facts.kernel}: block 0, ${facts.warps} warps, summed`, short ? 'tiny bold' : 'bold');
  picture.say(`What block 0 of ${facts.kernel} does between two barriers, by the number of the interval. `);
  let y = top;
  for (const lane of facts.lanes) {
    const bars = lane.bars.filter((bar) => bar.last >= first && bar.first < end);
    if (bars.length === 0) continue;
    picture.text(0, y + 16, lane.name, 'small');
    for (const ofRow of rowsOf(bars)) {
      for (const bar of ofRow) {
        const from = x(Math.max(bar.first, first)) + 3, to = x(Math.min(bar.last + 1, end)) - 3;
        const here = bar.first <= now && now <= bar.last, color = laneColors[lane.kind];
        picture.rect(from, y, to - from, row - 6, here ? `chosen s${color}` : tile(color), { round: 3 });
        const text = [bar.text, bar.text.split(': ').at(-1)].find(({ length }) => to - from > 6.2 * length);
        if (text) picture.text((from + to) / 2, y + 15, text, here ? 'small mid on' : 'small mid');
      }
      y += row;
    }
    picture.say(`${lane.name}: ${bars.map((bar) => `${bar.text} in ${fromTo(bar)}`).join(', ')}. `);
  }
  const every = Math.ceil(20 / wide);
  for (let i = first; i <= end; ++i) {
    const barrier = i > 0 && i < facts.intervals;
    picture.line(x(i), top - 8, x(i), y, barrier ? 's4 wide' : 'rule thin');
    if (i < end && i % every === 0)
      picture.text(x(i) + wide / 2, top - 12, i, i === now ? 'small mid bold' : 'small mid soft');
  }
  picture.text(0, top - 12, 'interval', 'small soft');
  picture.line(left, y + 16, left + 16, y + 16, 's4 wide');
  picture.text(left + 22, y + 20, facts.cut ?? 'a __syncthreads()', 'small');
  const units = 'Shared memory: wavefronts. Tensor cores, shuffles: instructions.';
  (short ? units.split(/(?<=\.) /) : [units]).forEach((text, i) => picture.text(short ? 0 : left + 200, y + 20 + 18 * (short + i * short), text, 'small soft'));
  picture.height = y + (short ? 66 : 30);
  return picture;
}

/// Where `at` is to be seen, of `all` by `shown`.
const windowAt = (at, all, shownOnes) => Math.max(0, Math.min(at - Math.floor(shownOnes / 2), all - shownOnes));

/// What warps wait for in one interval: by what, and where.
function waitsIn(facts, interval) {
  const said = new Map();
  for (const wait of facts.waits ?? []) {
    if (wait.interval !== interval) continue;
    const at = `at line ${wait.line} (${shortWait(wait.what)})`;
    said.set(at, (said.get(at) ?? new Set()).add(wait.warp));
  }
  return [...said].map(
    ([at, warps]) => `${warps.size === 1 ? 'warp' : 'warps'} ${ranges([...warps].sort((a, b) => a - b))} ${at}`,
  );
}

export function timeline(facts) {
  const all = facts.intervals;
  const show = () => {
    const interval = now.value, zoom = Math.min(all, many.value);
    const picture = drawTimeline(facts, { first: windowAt(interval, all, zoom), count: zoom, now: interval, space: screenWidth() });
    const running = facts.lanes.flatMap((lane) =>
      lane.bars
        .filter((bar) => bar.first <= interval && interval <= bar.last)
        .map((bar) => ({ name: lane.name, ...bar })),
    );
    const lines = running.map(
      (bar) => `${bar.name}: ${bar.text}${bar.first === bar.last ? '' : `, from interval ${bar.first} to ${bar.last}`}`,
    );
    const waits = waitsIn(facts, interval);
    if (waits.length > 0) lines.push(`Waits: ${waits.join('; ')}.`);
    if (facts.moved) lines.push(`So far: ${facts.moved[interval]}.`);
    const said =
      `Interval ${interval} of ${all}, between two barriers: ${running.map((bar) => bar.name).join('; ') || 'nothing that is counted'}.`;
    return { body: [picture, items(lines)], said };
  };
  const now = slider({
    name: 'interval', label: 'Interval', low: 0, high: all - 1, value: Math.min(facts.now ?? 1, all - 1), play: true,
  });
  const many = slider({
    name: 'shown', label: 'Intervals shown', low: 1, high: Math.min(all, 40), value: Math.min(all, facts.count, screenWidth() < width ? 3 : 40),
  });
  return frame(facts, { controls: all > 1 ? [now, many] : [now], show });
}

// --- Waits -------------------------------------------------------------------------------------------------------

/// "full[0]" of "full[0], phase 2 (parity 0): 1 of 1 arrivals"
const shortWait = (what) => /^[^,:]*/.exec(what)[0];

/// Steps of block 0: from one moment at which a wait or a copy ends to the next. Warps that wait alike are one row.
/// Of `wanted` steps from `first` on: {steps, rows: [{name, copies, bars: [{first, last, text, before}]}]}.
export function waitsOf({ waits, flights }, first, wanted) {
  const ends = [...new Set([...waits, ...flights].map(({ end }) => end))].sort((a, b) => a - b);
  const steps = ends.length + 1, stepAt = new Map(), end = Math.min(first + wanted, steps);
  const at = (time) => {
    if (!stepAt.has(time)) {
      const later = ends.findIndex((moment) => moment > time);
      stepAt.set(time, later < 0 ? ends.length : later);
    }
    return stepAt.get(time);
  };
  const rows = new Map(), warps = new Map();
  const add = (to, key, { begin, end: over }, text) => {
    const bars = to.get(key) ?? to.set(key, []).get(key);
    const bar = { first: Math.max(at(begin), first), last: Math.min(at(over), end), text, before: at(begin) < first };
    if (bar.first < bar.last) bars.push(bar);
  };
  for (const flight of flights) add(rows, `copies, ${flight.barrier}`, flight, flight.what);
  const named = ({ what, line }) => shortWait(what) + (line === undefined ? '' : `, line ${line}`);
  for (const wait of waits) add(warps, wait.warp, wait, named(wait));
  const alike = new Map();
  for (const [warp, bars] of [...warps].sort(([a], [b]) => a - b)) {
    const key = JSON.stringify(bars);
    (alike.get(key) ?? alike.set(key, { bars, of: [] }).get(key)).of.push(warp);
  }
  return {
    steps,
    rows: [
      ...[...rows].map(([name, bars]) => ({ name, copies: true, bars })),
      ...[...alike.values()].map(({ bars, of }) => ({
        name: `${of.length === 1 ? 'warp' : 'warps'} ${ranges(of)}`,
        many: of.length > 1,
        bars,
      })),
    ].filter(({ bars }) => bars.length > 0), // others run all the time, or have ended
  };
}

/// "Kf0" of "K_full[0]"
const initials = (text) => text.match(/[a-z]+|\d+/gi).map((word) => (/\d/.test(word) ? word : word[0])).join('');

export function drawWaits(facts, { first = facts.first, count: wanted = facts.count, space = width } = {}) {
  // In a step, what can run runs first, and begins to wait then.
  const left = 116, top = 44, tall = 24, runs = 0.25, narrow = 60, runColor = 2, copyColor = 1;
  const shortened = new Map();
  const { rows, steps } = waitsOf(facts, first, wanted), end = Math.min(first + wanted, steps);
  const picture = new Picture(space), wide = (space - left) / (end - first), x = (step) => left + (step - first) * wide, short = space < width, letter = short ? 7.5 : 5.2;
  picture.text(0, 16, `Thread block 0, ${facts.warps} warps, ${short ? 'simulated' : "in the simulator's order"}`, short ? 'small bold' : 'bold');
  picture.say('Steps end when a wait or a copy ends. ');
  const every = Math.ceil(20 / wide);
  for (let i = first; i < end; ++i) if (i % every === 0) picture.text(x(i + 0.5), top - 8, i, 'small mid soft');
  picture.text(0, top - 8, 'step', 'small soft');
  let y = top;
  for (const row of rows) {
    picture.text(0, y + 16, row.name, 'small');
    if (!row.copies) picture.rect(x(first), y, (end - first) * wide, tall, pale(runColor), { round: 3 });
    for (const bar of row.bars) {
      const from = x(bar.first + (bar.before ? 0 : runs)), to = x(bar.last),
        text = bar.text.startsWith('wgmma') ? 'wgmma' : shortWait(bar.text);
      picture.named(`${row.name}: ${bar.text}`, () => {
        picture.rect(from, y, to - from, tall, row.copies ? tile(copyColor) : 'faint rule', { round: 3 });
        if (to - from > letter * text.length) {
          picture.text((from + to) / 2, y + 16, text, to - from < narrow ? 'tiny mid' : 'small mid');
        } else if (to - from > letter * initials(text).length) {
          picture.text((from + to) / 2, y + 16, initials(text), 'tiny mid');
          shortened.set(initials(text), text);
        }
      });
    }
    const does = row.copies ? '' : row.many ? ' wait for' : ' waits for';
    picture.say(
      `${row.name}${does}: ${row.bars.map((bar) => `${bar.text} from step ${bar.first} to ${bar.last}`).join(', ')}. `,
    );
    y += tall + 6;
  }
  for (let i = first; i <= end; ++i) picture.line(x(i), top - 4, x(i), y, 'rule thin');
  const key = (at, names, meaning) => {
    picture.rect(at, y + 8, 16, 14, names, { round: 3 });
    picture.text(at + 22, y + 20, meaning, 'small');
  };
  key(short ? 0 : left, pale(runColor), 'runs');
  key(short ? 60 : left + 90, 'faint rule', 'waits for the barrier named');
  if (short) y += 20;
  key(short ? 0 : left + 290, tile(copyColor), 'a copy in flight');
  picture.height = y + 30;
  if (shortened.size === 0) return picture;
  const meanings = [...shortened].sort().map(([text, meaning]) => `${text}: ${meaning}`), lines = short ? meanings : [meanings.join(', ')];
  lines.forEach((text, i) => picture.text(short ? 0 : left, y + 40 + 16 * i, text, 'small soft'));
  picture.height = y + 34 + 16 * lines.length;
  return picture;
}

export function waits(facts) {
  const all = waitsOf(facts, 0, 1).steps;
  const show = () => {
    const zoom = Math.min(all, many.value);
    from.set(Math.min(from.value, all - zoom), all - zoom);
    const picture = drawWaits(facts, { first: from.value, count: zoom, space: screenWidth() });
    return { body: [picture], said: `Steps ${from.value} to ${from.value + zoom - 1} of ${all}: ${count(facts.warps, 'warp')} of block 0.` };
  };
  const from = slider({
    name: 'first', label: 'From step', low: 0, high: Math.max(0, all - facts.count),
    value: Math.min(facts.first, all - 1), play: true,
  });
  const many = slider({
    name: 'shown', label: 'Steps shown', low: Math.min(2, all), high: Math.min(all, 60),
    value: Math.min(all, facts.count, screenWidth() < width ? 3 : 60),
  });
  return frame(facts, { controls: [from, many], show });
}
