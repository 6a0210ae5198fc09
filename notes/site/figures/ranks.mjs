// The time of a causal forward pass on several ranks, by the formulas of the lesson: what is computed, and what a rank
// waits for, in a ring, after an all-gather, and with Ulysses.
import { Picture, bytes, digits, width } from './paint.mjs';
import { choice, frame, slider } from './parts.mjs';

/// Seconds and bytes of a rank with n tokens; `hidden` is the smallest n whose transfers a ring hides.
export function costs({ heads, d, tflops }, { ranks, tokens, group, gbs }) {
  const F = tflops * 1e12, W = gbs * 1e9, kv = heads / group;
  const step = (2 * heads * d * tokens ** 2) / F, shard = 4 * tokens * kv * d;
  const sent = [(ranks - 1) * shard, (ranks - 1) * shard, (4 * tokens * d * (heads + kv) * (ranks - 1)) / ranks];
  const waits = [(ranks - 1) * Math.max(0, shard / W - step), sent[1] / W, sent[2] / W];
  const ways = ['ring', 'all-gather', 'Ulysses'].map((name, i) => ({ name, bytes: sent[i], waits: waits[i] }));
  return { step, transfer: shard / W, compute: ranks * step, hidden: Math.ceil((2 * F) / (group * W)), ways, kv };
}

export const time = (seconds) =>
  seconds >= 1 ? `${digits(seconds, 3)} s` : seconds >= 1e-3 ? `${digits(seconds * 1e3, 3)} ms` : `${digits(seconds * 1e6, 3)} µs`;

export function drawRanks(facts, chosen = facts) {
  const picture = new Picture(), { ways, compute } = costs(facts, chosen), left = 80, top = 40, row = 52;
  const longest = compute + Math.max(...ways.map((way) => way.waits)), scale = (width - left) / longest;
  picture.text(left, 16, `R = ${chosen.ranks}, n = ${chosen.tokens}, H = ${facts.heads}, H / Hkv = ${chosen.group}, d = ${facts.d}: one rank's time`, 'bold');
  ways.forEach(({ name, bytes: sent, waits }, i) => {
    const y = top + i * row;
    picture.text(0, y + 14, name);
    picture.rect(left, y, compute * scale, 20, 'p0 s0');
    if (waits > 0) picture.rect(left + compute * scale, y, waits * scale, 20, 'p4 s4', { data: `data-waits="${name}"` });
    const said = `${time(compute)} of computation, ${waits > 0 ? `${time(waits)} of waiting` : 'no waiting'}, ${bytes(sent)} sent`;
    picture.text(left, y + 35, said, 'small soft');
    picture.say(`${name}: ${said}. `);
  });
  picture.height = top + 3 * row + 22;
  picture.text(0, picture.height - 18, `Blue: kernels, at ${facts.tflops} TFLOP/s. Red: transfers that no kernel hides, at ${chosen.gbs} GB/s in one direction.`, 'small soft');
  picture.text(0, picture.height - 2, 'By the formulas of the lesson: latencies, launches, and what NCCL takes from the kernels are not included.', 'small soft');
  return picture;
}

export function ranks(facts) {
  const show = () => {
    const chosen = { ranks: count.value, tokens: 2 ** tokens.value, group: Number(group.value), gbs: Number(link.value) };
    const { step, transfer, hidden, ways, kv } = costs(facts, chosen);
    const fewest = ways[2].bytes < ways[0].bytes ? 'Ulysses sends less' : 'a ring sends less, or as much';
    const said =
      `A step computes for ${time(step)}, and a shard takes ${time(transfer)}: ${transfer <= step ? 'hidden' : 'not hidden'}. ` +
      `A ring hides its transfers from n = ${hidden} on. Per rank, ${fewest}${kv % chosen.ranks === 0 ? '' : '; R does not divide Hkv, so Ulysses would repeat K and V'}.`;
    return { body: [drawRanks(facts, chosen)], said };
  };
  const count = slider({ name: 'ranks', label: 'Ranks R', low: 2, high: 16, value: facts.ranks });
  const tokens = slider({ name: 'tokens', label: 'Tokens per rank n', low: 8, high: 17, value: Math.log2(facts.tokens), text: (power) => String(2 ** power) });
  const groups = [1, 2, 4, 8, 16, 32].filter((each) => facts.heads % each === 0);
  const group = choice({ name: 'group', label: 'H / Hkv', options: groups.map((each) => [each, each]), value: facts.group });
  const link = choice({ name: 'link', label: 'Bandwidth', options: facts.links.map((each) => [each, `${each} GB/s`]), value: facts.gbs });
  return frame(facts, { controls: [count, tokens, group, link], show });
}
