// The arithmetic of the causal map, by the definition alone: query i sees key j when j <= i + (Nk - Nq). The tests
// compare it with runs on the simulator.

/// A text a row of tiles: "#" every query of the tile sees every key, "m" some pairs are masked, "." nobody sees any.
export function causalCells({ queries, keys, rowTile, columnTile, causal }) {
  const seenBy = (query) => (causal ? Math.min(keys, Math.max(0, query + keys - queries + 1)) : keys);
  const cells = [];
  for (let first = 0; first < queries; first += rowTile) {
    let row = '';
    for (let key = 0; key < keys; key += columnTile) {
      let pairs = 0,
        rows = 0;
      for (let query = first; query < Math.min(first + rowTile, queries); ++query, ++rows)
        pairs += Math.min(columnTile, Math.max(0, seenBy(query) - key));
      row += pairs === 0 ? '.' : pairs === rows * columnTile ? '#' : 'm';
    }
    cells.push(row);
  }
  return cells;
}
