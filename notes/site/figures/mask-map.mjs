// The arithmetic of the map of tiles, by the definition of the masks alone: query i stands at key i + (Nk - Nq), and sees
// so many keys before and after it, of its own packed sequence. The tests compare it with runs on the simulator.

/// A mask's text, as `run --mask` takes it, in numbers.
export function maskOf(text) {
  const [kind, ...parts] = text.split('+'),
    window = kind.startsWith('window=') ? kind.slice(7).split(',').map(Number) : undefined;
  const [left, right] = window ?? [Infinity, kind === 'causal' ? 0 : Infinity];
  const lengths = parts.find((part) => part.startsWith('lengths='));
  return { left, right, lengths: lengths ? lengths.slice(8).split(',').map(Number) : [] };
}

/// The packed sequences, [first, last) each, of so many rows.
export function sequencesOf(rows, lengths) {
  let last = 0;
  return lengths.length === 0 ? [[0, rows]] : lengths.map((length) => [last, (last += length)]);
}

/// Where tiles of so many rows begin, anew with each sequence; and where the last one ends.
export function edgesOf(rows, tile, lengths) {
  const edges = [];
  for (const [first, last] of sequencesOf(rows, lengths)) for (let at = first; at < last; at += tile) edges.push(at);
  return [...edges, rows];
}

/// cells: a text a row of tiles; "#" every query of the tile sees every key, "m" some pairs are masked, "." nobody sees
/// any. keysRead: the keys of the tiles that are not skipped, over all rows of tiles.
export function maskCells({ queries, keys, rowTile, columnTile, mask }) {
  const { left, right, lengths } = maskOf(mask);
  const sequences = sequencesOf(keys, lengths), rowEdges = edgesOf(queries, rowTile, lengths),
    columnEdges = edgesOf(keys, columnTile, lengths);
  const seenBy = (query) => {
    const at = query + keys - queries,
      [first, last] = lengths.length === 0 ? sequences[0] : sequences.find((sequence) => query < sequence[1]);
    return [Math.max(first, at - left), Math.min(last, at + right + 1)];
  };
  const cells = [];
  let keysRead = 0;
  for (let i = 0; i + 1 < rowEdges.length; ++i) {
    let row = '';
    const seen = Array.from({ length: rowEdges[i + 1] - rowEdges[i] }, (_, r) => seenBy(rowEdges[i] + r));
    for (let j = 0; j + 1 < columnEdges.length; ++j) {
      const [begin, end] = [columnEdges[j], columnEdges[j + 1]];
      const pairs = seen.reduce(
        (sum, [first, last]) => sum + Math.max(0, Math.min(last, end) - Math.max(first, begin)), 0,
      );
      row += pairs === 0 ? '.' : pairs === seen.length * columnTile ? '#' : 'm';
      if (pairs > 0) keysRead += end - begin;
    }
    cells.push(row);
  }
  return { cells, keysRead };
}
