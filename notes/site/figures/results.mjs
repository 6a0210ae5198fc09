// A reader's own results, as `./workbook bench --json` prints them (notes/json.md), as points of the roofline.

/// Stages timed on a GPU, of the pass that the facts are of. An Error with what is wrong for a reader.
export function readResults(document, facts) {
  if (!Array.isArray(document?.points))
    throw new Error('This is no output of ./workbook bench --json: it has no points.');
  const pass = facts.section.split(',')[0];
  const timed = document.points.filter(
    (point) => point.kind === 'stage' && point.pass === pass && point.gigabytes_per_second > 0,
  );
  if (timed.length === 0) throw new Error(`It has no ${pass} stage that was timed on a GPU.`);
  return timed.map((point) => ({
    name: `${point.name}, d = ${point.d}, N = ${point.N}${point.causal ? ', causal' : ''}`,
    flop_per_byte: (point.tflops * 1000) / point.gigabytes_per_second,
    tflops: point.tflops,
  }));
}
